"""Shell completion: a script with the commands, their options and the options' choices."""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args, get_origin

from minbert.errors import InputError
from multitask.cli.command import Command, Group
from multitask.cli.options import Option, optional

SCRIPT = """\
_multitask() {{
  local words command=${{COMP_WORDS[1]}} member=${{COMP_WORDS[2]}}
  [ "$COMP_CWORD" -le 2 ] && member=
  [ "$COMP_CWORD" = 1 ] && command=
  case "$command $member" in
{commands}
    *) words="{names}" ;;
  esac
  case "$command $member ${{COMP_WORDS[COMP_CWORD-1]}}" in
{choices}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _multitask multitask"""
ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"


def completion_script(commands: Sequence[Command | Group], shell: Sequence[str]) -> str:
    """A script that makes a shell complete all commands. Raises InputError for other shells than bash and zsh."""
    if list(shell) not in (["bash"], ["zsh"]):
        raise InputError("--print-completion takes one of: bash, zsh")
    arms, choices = [], []
    for found in commands:
        members = found.commands if isinstance(found, Group) else [found]
        for command in members:
            options = [*command.declared(), *command.general()]
            pattern = f'"{found.name} {command.name}"' if isinstance(found, Group) else f'"{found.name} "*'
            arms.append(_arm(pattern, [o.flag for o in options if not o.positional] + ["--help", "--help-all"]))
            choices += [_arm(f'{pattern}" {o.flag}"', values) for o in options if (values := _choices(o))]
        if isinstance(found, Group):
            arms.append(_arm(f'"{found.name} "*', [command.name for command in members]))
    script = SCRIPT.format(
        commands="\n".join(arms), names=" ".join(command.name for command in commands), choices="\n".join(choices)
    )
    return ZSH + script if list(shell) == ["zsh"] else script


def _arm(pattern: str, words: Iterable[str]) -> str:
    return f'    {pattern}) words="{" ".join(words)}" ;;'


def _choices(option: Option) -> Sequence[str]:
    kind, _ = optional(option.kind)
    kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return get_args(kind) if get_origin(kind) is Literal else ()
