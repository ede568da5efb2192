"""Tab completion of the command line."""

from __future__ import annotations

from collections.abc import Sequence

from harness.config import manual
from harness.config.check import primary
from harness.config.commands import COMMANDS
from harness.config.schema import keys

SCRIPTS = {
    "bash": """_harness() {
  COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}
  local found="$(COMP_LINE="${COMP_LINE:0:$COMP_POINT}" harness -sc query=bash)"
  COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o nospace -o default -F _harness harness""",
    "zsh": """autoload -Uz compinit bashcompinit && compinit && bashcompinit
_harness() { COMPREPLY=($(COMP_LINE="${COMP_WORDS[*]}" harness -sc query=zsh)) }
complete -o nospace -o default -F _harness harness""",
    "fish": """function __harness; env COMP_LINE=(commandline -cp) harness -sc query=fish | string split " "; end
complete -c harness -f -a '(__harness)'""",
}


def candidates(line: str) -> list[str]:
    """What the last word of a line may be: commands first, then keys and groups, then the values of a key."""
    typed = line.split()[1:]
    word = typed.pop() if typed and not line.endswith(" ") else ""
    before = " ".join(typed[:2])
    if not typed:
        return [one for one in dict.fromkeys(name.split()[0] for name in COMMANDS) if one.startswith(word)]
    second = [name.split()[1] for name in COMMANDS if name.startswith(f"{typed[0]} ")]
    if len(typed) == 1 and (found := [one for one in second if one.startswith(word)]):
        return found + (_arguments(typed[0], typed, word) if word and typed[0] in COMMANDS else [])
    command = before if before in COMMANDS else typed[0]
    return _arguments(command, typed, word) if command in COMMANDS else []


def _arguments(command: str, typed: Sequence[str], word: str) -> list[str]:
    """The overrides that begin with a word."""
    own = manual.manual(primary(command))
    key, equals, _ = word.partition("=")
    if equals:
        about = keys(COMMANDS[command].config).get(key)
        values = manual.choices(key) if key in own.groups else about.values if about else []
        return [found for one in values if (found := f"{key}={one}").startswith(word)]
    chosen = {group: entry.value for group, entry in own.groups.items()}
    chosen |= {group: value for group, _, value in (one.partition("=") for one in typed) if group in chosen}
    inner = [one for group, choice in chosen.items() for one in manual.keys_of(group, choice)]
    return [f"{one}=" for one in dict.fromkeys([*own.groups, *own.keys, *inner]) if one.startswith(word)]
