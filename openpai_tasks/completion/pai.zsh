#compdef @NAMES@
# Pressing TAB starts no program: tasks and flags are written here,
# and names of jobs, clusters, templates and paths are in lists that the commands update.

_@ID@_task() { # sets flags, values and slots of the task that the word names
    case "$task/$1" in
@CASES@
        *) return 1 ;;
    esac
}

_@ID@_paths() { # the paths that begin with what was typed, level by level
    local line rest typed="${(Q)PREFIX}"
    local -aU found
    [[ -f $1 && -r $1 ]] || return
    for line in "${(@f)$(<$1)}"; do
        [[ $line == "$typed"* ]] || continue
        rest="${line#"$typed"}"
        [[ $rest == */* ]] && line="$typed${rest%%/*}/"
        found+=("$line")
    done
    compadd -S '' -a found
}

_@ID@_values() { # values of a kind
    local names="${OPENPAI_HOME:-$HOME/.openpai}/cache/names" list
    local -aU lists found
    case "$1" in
        files) _files; return ;;
        clusters | virtual-clusters | storages) lists=("$names/$1") ;;
        jobs)
            lists=("$names"/jobs/*(N))
            [[ -n $cluster && -f $names/jobs/$cluster ]] && lists=("$names/jobs/$cluster")
            ;;
        templates)
            found=(job_templates/*.(yaml|yml)(N:t:r))
            lists=("$names/templates")
            ;;
        paths)
            if [[ $PREFIX == pai://* ]]; then
                _@ID@_paths "$names/paths"
            else
                compadd -S '' -- pai://
                _files
            fi
            return
            ;;
        *'|'*) found=("${(@s:|:)1}") ;;
    esac
    for list in $lists; do
        [[ -f $list && -r $list ]] && found+=("${(@f)$(<$list)}")
    done
    found=(${${found:#}:#*[[:cntrl:]]*})
    if [[ ${found[1]} == *= ]]; then
        compadd -S '' -a found
    else
        compadd -a found
    fi
}

_@ID@() {
    local values kind='' task='' expected='' cluster='' word
    local -a flags slots tasks
    local -i seen=0
    @CORE@
    for word in "${(@)words[2,CURRENT-1]}"; do
        if [[ -n $expected ]]; then
            [[ $expected == clusters ]] && cluster="$word"
            expected=
        elif [[ $word == -- ]]; then
            _files
            return
        elif [[ $word == -*=* ]]; then
            [[ $values == *" ${word%%=*}=clusters "* ]] && cluster="${word#*=}"
        elif [[ $word == -* ]]; then
            [[ $values == *" $word="* ]] && expected="${${values#*" $word="}%% *}"
        elif _@ID@_task "$word"; then
            task="$word" seen=0
        else
            seen=$((seen + 1))
        fi
    done
    if ((seen < $#slots)); then
        kind="${slots[seen+1]}"
    elif [[ "${slots[-1]}" == *... ]]; then
        kind="${slots[-1]}"
    fi
    if [[ -n $expected ]]; then
        _@ID@_values "$expected"
    elif [[ $PREFIX == --*=* && $values == *" ${PREFIX%%=*}="* ]]; then
        kind="${${values#*" ${PREFIX%%=*}="}%% *}"
        compset -P '*='
        _@ID@_values "$kind"
    elif [[ $PREFIX == -* ]]; then
        _describe -o flag flags
    elif [[ -n $kind ]]; then
        _@ID@_values "${kind%...}"
    else
        tasks=(@TASKS@)
        [[ -n $task ]] || tasks+=(@FIRST@)
        _describe task tasks
    fi
}

if [[ ${funcstack[1]} == _@ID@ ]]; then # found in a folder of functions, under this name
    _@ID@ "$@"
else
    compdef _@ID@ @NAMES@
fi
