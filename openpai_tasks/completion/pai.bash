# Completes @NAMES@ in bash, 3.2 or newer. Pressing TAB starts no program: tasks and flags are written here,
# and names of jobs, clusters, templates and paths are in lists that the commands update.

_@ID@_task() { # sets flags, values and slots of the task that the word names
    case "$task/$1" in
@CASES@
        *) return 1 ;;
    esac
}

_@ID@_offer() { # the words that begin with what was typed
    local word
    for word; do
        [[ $word == "$typed"* ]] && COMPREPLY+=("$prefix$word")
    done
}

_@ID@_lines() { # the same for lines of files, read at once, which is much faster than line by line
    local IFS=$'\n' file text line globbing=
    [[ $- == *f* ]] || globbing=yes
    set -f
    for file; do
        [[ -f $file && -r $file ]] || continue
        IFS= read -r -d '' text <"$file"
        for line in $text; do
            [[ $line == "$typed"* ]] && COMPREPLY+=("$prefix$line")
        done
    done
    [[ $globbing ]] && set +f
}

_@ID@_paths() { # the same with paths, level by level
    local file line rest last=
    for file; do
        [[ -f $file && -r $file ]] || continue
        while IFS= read -r line; do
            [[ $line == "$typed"* ]] || continue
            rest="${line#"$typed"}"
            [[ $rest == */* ]] && line="$typed${rest%%/*}/"
            [[ $line == "$last" ]] && continue
            last="$line"
            COMPREPLY+=("$prefix$line")
        done <"$file"
    done
}

_@ID@_values() { # values of a kind
    local lists="${OPENPAI_HOME:-$HOME/.openpai}/cache/names" file
    typed="${typed//\\/}"
    case "$1" in
        clusters | virtual-clusters | storages) _@ID@_lines "$lists/$1" ;;
        jobs)
            if [[ $cluster && -f $lists/jobs/$cluster ]]; then
                _@ID@_lines "$lists/jobs/$cluster"
            else
                _@ID@_lines "$lists"/jobs/*
            fi
            ;;
        templates)
            for file in job_templates/*.yaml job_templates/*.yml; do
                [[ -e $file && $file != *[[:cntrl:]]* ]] || continue
                file="${file##*/}"
                _@ID@_offer "${file%.*}"
            done
            _@ID@_lines "$lists/templates"
            ;;
        paths)
            if [[ $typed == pai://* ]]; then
                _@ID@_paths "$lists/paths"
            elif [[ $typed ]]; then
                _@ID@_offer pai://
            fi
            ;;
        *'|'*)
            local IFS='|'
            _@ID@_offer $1
            ;;
    esac
}

_@ID@_complete() {
    local flags values slots kinds kind='' task='' expected='' cluster='' prefix='' seen=0
    local words=() word whole typed joined='' mark cut='' i
    COMPREPLY=()
    for ((i = 1; i <= COMP_CWORD; i++)); do # bash has cut the words at : and =
        word="${COMP_WORDS[i]}"
        if [[ ${#words[@]} -gt 0 && ($joined || $word == [:=]*) ]]; then
            words[${#words[@]} - 1]+="$word"
        else
            words+=("$word")
        fi
        [[ $word == *[:=] ]] && joined=yes || joined=
    done
    whole="${words[${#words[@]} - 1]}" typed="$whole"
    @CORE@
    for ((i = 0; i < ${#words[@]} - 1; i++)); do
        word="${words[i]}"
        if [[ $expected ]]; then
            [[ $expected == clusters ]] && cluster="$word"
            expected=
        elif [[ $word == -- ]]; then
            return
        elif [[ $word == -*=* ]]; then
            [[ $values == *" ${word%%=*}=clusters "* ]] && cluster="${word#*=}"
        elif [[ $word == -* ]]; then
            [[ $values == *" $word="* ]] && expected="${values#*" $word="}" expected="${expected%% *}"
        elif _@ID@_task "$word"; then
            task="$word" seen=0
        else
            seen=$((seen + 1))
        fi
    done
    kinds=($slots)
    if ((seen < ${#kinds[@]})); then
        kind="${kinds[seen]}"
    elif [[ $slots == *... ]]; then
        kind="${kinds[${#kinds[@]} - 1]}"
    fi
    if [[ $expected ]]; then
        _@ID@_values "$expected"
    elif [[ $typed == --*=* && $values == *" ${typed%%=*}="* ]]; then
        prefix="${typed%%=*}=" typed="${typed#*=}"
        kind="${values#*" $prefix"}"
        _@ID@_values "${kind%% *}"
    elif [[ $typed == -* ]]; then
        _@ID@_offer $flags
    elif [[ $kind ]]; then
        _@ID@_values "${kind%...}"
    else
        [[ $task ]] || _@ID@_offer @FIRST@
        _@ID@_offer @TASKS@
    fi
    for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do # bash would run what is in the names of files
        word="${COMPREPLY[i]}"
        [[ $word == *[!A-Za-z0-9_.,:/@%+=~-]* || $word == '~'* ]] && printf -v word %q "$word"
        COMPREPLY[i]="$word"
    done
    for mark in : =; do # bash replaces only what follows the last of them
        [[ $COMP_WORDBREAKS == *"$mark"* && $whole == *"$mark"* ]] || continue
        word="${whole%"${whole##*"$mark"}"}"
        [[ ${#word} -gt ${#cut} ]] && cut="$word"
    done
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o default -F _@ID@_complete @NAMES@
