"""Completion scripts with every name and flag written into them, so that a TAB starts no Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Commands = Mapping[str, Sequence[str]]


def script(shell: str, binary: str, commands: Commands, core: Sequence[str]) -> str:
    """The script for one of ``SHELLS``; ``core`` are the flags that stand before a task."""
    return SHELLS[shell](binary, commands, core)


def _cases(commands: Commands, indent: str) -> str:
    rows = sorted(commands.items())
    return "\n".join(f"{indent}{name}) flags='{' '.join(flags)}' ;;" for name, flags in rows)


def _bash(binary: str, commands: Commands, core: Sequence[str]) -> str:
    return f"""\
_{binary}_complete() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" flags='{" ".join(core)}' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{COMP_WORDS[i]}}" in
{_cases(commands, " " * 8)}
        esac
    done
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
        *) COMPREPLY=($(compgen -W '{" ".join(sorted(commands))}' -- "$word")) ;;
    esac
}}
complete -o default -F _{binary}_complete {binary}"""


def _zsh(binary: str, commands: Commands, core: Sequence[str]) -> str:
    return f"""\
#compdef {binary}
_{binary}_complete() {{
    local flags='{" ".join(core)}' word
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$word" in
{_cases(commands, " " * 8)}
        esac
    done
    case "$words[CURRENT]" in
        -*) compadd -- ${{=flags}} ;;
        *) compadd -- {" ".join(sorted(commands))}; _files ;;
    esac
}}
compdef _{binary}_complete {binary}"""


def _fish(binary: str, commands: Commands, core: Sequence[str]) -> str:
    names = " ".join(sorted(commands))
    lines = [
        f"complete -c {binary} -a '{names}'",
        *(_fish_flag(binary, flag, f"not __fish_seen_subcommand_from {names}") for flag in core),
    ]
    for name, flags in sorted(commands.items()):
        lines += [_fish_flag(binary, flag, f"__fish_seen_subcommand_from {name}") for flag in flags]
    return "\n".join(lines)


def _fish_flag(binary: str, flag: str, condition: str) -> str:
    option = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
    return f"complete -c {binary} -n '{condition}' {option}"


SHELLS: dict[str, Callable[[str, Commands, Sequence[str]], str]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
