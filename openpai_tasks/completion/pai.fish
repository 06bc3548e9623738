# Completes @NAMES@ in fish. Pressing TAB starts no program: tasks and flags are written here,
# and names of jobs, clusters, templates and paths are in lists that the commands update.

function __@ID@_task --no-scope-shadowing # sets flags, values and slots of the task that the word names
    switch "$task/$argv[1]"
@CASES@
        case '*'
            return 1
    end
    return 0
end

function __@ID@_lines # the lines of files
    for file in $argv
        test -f $file -a -r $file; and string match -r '.+' <$file
    end
end

function __@ID@_paths # the paths that begin with what was typed, level by level
    set -l typed $argv[1]
    set -l last
    for line in (__@ID@_lines $argv[2..])
        set -l rest (string sub -s (math (string length -- $typed) + 1) -- $line)
        test "$typed$rest" = "$line"; or continue
        string match -q '*/*' -- $rest; and set line $typed(string split -m 1 / -- $rest)[1]/
        test "$line" = "$last"; and continue
        set last $line
        echo $line
    end
end

function __@ID@_values # values of the kind argv[1]; argv[2] is what is typed, argv[3] the cluster
    set -l home $OPENPAI_HOME
    test -n "$home"; or set home $HOME/.openpai
    set -l lists $home/cache/names
    switch $argv[1]
        case clusters virtual-clusters storages
            __@ID@_lines $lists/$argv[1]
        case jobs
            if test -n "$argv[3]" -a -f "$lists/jobs/$argv[3]"
                __@ID@_lines $lists/jobs/$argv[3]
            else
                __@ID@_lines $lists/jobs/*
            end
        case templates
            for file in job_templates/*.yaml job_templates/*.yml
                string match -qr '[[:cntrl:]]' -- $file; or string replace -r '.*/([^/]*)\.ya?ml$' '$1' -- $file
            end
            __@ID@_lines $lists/templates
        case paths
            if string match -q 'pai://*' -- "$argv[2]"
                __@ID@_paths "$argv[2]" $lists/paths
            else
                echo pai://
            end
        case '*|*'
            string split '|' -- $argv[1]
    end
end

function __@ID@_kind # the kind that a flag's value has
    for value in $argv[2..]
        set -l parts (string split -m 1 = -- $value)
        test "$parts[1]" = "$argv[1]"; and echo $parts[2]
    end
end

function __@ID@_complete # what may come next; with an argument, whether it is a file
    set -l words (commandline -opc)[2..]
    set -l typed (commandline -ct)
    set -l task ''
    set -l kind ''
    set -l cluster ''
    set -l lead ''
    set -l seen 0
    set -l flags
    set -l values
    set -l slots
    @CORE@
    for word in $words
        set -l flag (string split -m 1 = -- $word)
        if test -n "$kind"
            test $kind = clusters; and set cluster $word
            set kind ''
        else if test "$word" = --
            test -n "$argv[1]"
            return
        else if string match -q -- '-*=*' $word
            test "$(__@ID@_kind $flag[1] $values)" = clusters; and set cluster $flag[2]
        else if string match -q -- '-*' $word
            set kind (__@ID@_kind $word $values)
        else if __@ID@_task $word
            set task $word
            set seen 0
        else
            set seen (math $seen + 1)
        end
    end
    if test -z "$kind"
        if string match -q -- '--*=*' $typed
            set -l flag (string split -m 1 = -- $typed)
            set lead $flag[1]=
            set kind (__@ID@_kind $flag[1] $values)
            set typed $flag[2]
        else if string match -q -- '-*' $typed
            test -z "$argv[1]"; and printf '%s\n' $flags
            return
        else if test $seen -lt (count $slots)
            set kind (string replace -r '\.\.\.$' '' -- $slots[(math $seen + 1)])
        else if string match -q '*...' -- "$slots[-1]"
            set kind (string replace -r '\.\.\.$' '' -- $slots[-1])
        end
    end
    if test -n "$argv[1]"
        contains -- "$kind" files paths; and not string match -q 'pai:*' -- $typed
        return
    end
    if test -n "$kind"
        for value in (__@ID@_values $kind "$typed" "$cluster")
            echo "$lead$value"
        end
    else
        test -z "$task"; and printf '%s\n' @FIRST@
        printf '%s\n' @TASKS@
    end
end

for name in @NAMES@
    complete -c $name -e
    complete -c $name -f -a '(__@ID@_complete)'
    complete -c $name -n '__@ID@_complete files' -F
end
