"""`harness COMMAND --help`, and tab completion of the command line."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from harness.config import manual
from harness.config.check import primary
from harness.config.command_list import COMMANDS
from harness.config.defaults import Defaults, chosen_groups, command_defaults, config_folders
from harness.config.manual import Entry
from harness.config.schema import keys

LEAST, MOST = 60, 100  # the minimum and the maximum width of a line
COLUMN = 27  # the column where comments begin
CHOICES = 17  # the column where descriptions of choices begin
ONLY_WITH = {"encoder": "${encoder}", "index": "${index}", "llm": "${llm}"}  # group -> how components refer to it
REFUSED = (
    ("run", "task"),
    ("load", "task"),
)  # (command, group): help leaves out the group, since only one choice is possible
LAST = ("outputs", "format", "store.path")  # keys that help lists after all others
LONGEST = 40  # the maximum number of characters of a value that is shown in full


def help_page(command: str, words: Sequence[str]) -> str:
    """Return the help of a command, with values from the command line (`words`) and from harness.yaml."""
    name, folders = primary(command), config_folders(words)
    own, from_file = manual.manual(name), command_defaults(name, words) if command != "init" else Defaults()
    given = {one.key: "null" if one.value is None else one.text or str(one.value) for one in from_file.settings}
    given |= {key.lstrip("+~"): value for key, equals, value in (word.partition("=") for word in words) if equals}
    choices = chosen_groups(name, words)
    lines = [
        f"harness {command} [KEY=VALUE ...]",
        *_wrapped(COMMANDS[command].about, ""),
        "",
        f"Example: harness {command} {COMMANDS[command].example}".rstrip(),
    ]
    groups = {group: entry for group, entry in own.groups.items() if (command, group) not in REFUSED}
    main = COMMANDS[command].first
    plain = {key: entry for key, entry in own.keys.items() if key.partition(".")[0] not in own.groups}
    for group in (key for key in main if key in groups):
        lines += ["", *_group(group, groups[group], choices, given, folders, brief=group not in given)]
    if first := [key for key in main if key in plain]:
        lines += ["", *(line for key in first for line in _row(key, plain.pop(key), given))]
    lines += ["", "All other keys, with their values:" if main else "Keys, with their values:"]
    for key in sorted(plain, key=LAST.__contains__):
        lines += _row(key, plain[key], given)
    if others := {group: entry for group, entry in groups.items() if group not in main}:
        text = "Components and recipes; * marks the choice. GROUP=CHOICE chooses another. To list its keys, use"
        lines += ["", *_wrapped(f"{text} `harness {command} GROUP=CHOICE --help`:", "")]
        for group, entry in others.items():
            if main and group not in given:
                picked = choices[group]
                names = (f"*{one}" if one == picked else one for one in manual.choice_files(group, folders))
                lines += _wrapped(" | ".join(names), f"  {group}={picked}")
                for key in (key for key in own.keys if key.partition(".")[0] == group):
                    lines += _row(key, own.keys[key], given)
            else:
                lines += ["", *_group(group, entry, choices, given, folders)]
    lines += [
        "",
        *_wrapped("--cfg job prints the whole config. harness.yaml sets defaults for all commands in its folder.", ""),
    ]
    return "\n".join(lines)


def _group(
    group: str,
    entry: Entry,
    picked: Mapping[str, str],
    given: Mapping[str, str],
    folders: Sequence,
    brief: bool = False,
) -> Iterator[str]:
    yield from _wrapped(entry.comment, f"{group}={picked[group]}")
    for choice, path in manual.choice_files(group, folders).items():
        mark = "*" if choice == picked[group] else " "
        yield _choice(mark, choice, manual.read_manual(path).about)
    users = [manual.manual_keys(user, picked[user], folders) for user in ("retriever", "gate") if user in picked]
    used = not users or any(one.value == ONLY_WITH.get(group) for keys in users for one in keys.values())
    if brief or (group in ONLY_WITH and group not in given and not used):
        return
    for key, inner in manual.manual_keys(group, picked[group], folders).items():
        if key.partition(".")[0] != "hydra" and not (group == "task" and "." not in key):
            yield from _row(key, inner, given, "   ")


def _row(key: str, entry: Entry, given: Mapping[str, str], indent: str = "  ") -> list[str]:
    value = given.get(key, entry.value)
    shown = value if len(value) <= LONGEST else f"{value[: LONGEST - 2]} …"
    return _wrapped(entry.comment, f"{indent}{key}={shown}")


def _choice(mark: str, choice: str, about: str) -> str:
    head = f" {mark} {choice} ".ljust(CHOICES)
    return head + textwrap.shorten(about.rstrip("."), max(_width() - len(head), 1), placeholder=" …")


def _width() -> int:
    return min(max(shutil.get_terminal_size((80, 24)).columns, LEAST), MOST)


def _wrapped(text: str, head: str) -> list[str]:
    if not head:
        return textwrap.wrap(text, _width())
    if not text:
        return [head]
    rows = textwrap.wrap(text, _width() - COLUMN)
    if len(head) + 2 > COLUMN:
        return [head, *(" " * COLUMN + row for row in rows)]
    return [head.ljust(COLUMN) + rows[0], *(" " * COLUMN + row for row in rows[1:])]


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
    """Return the completions of the last word of a line: commands, keys and groups, or the values of a key."""
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
    own = manual.manual(primary(command))
    key, equals, _ = word.partition("=")
    if equals:
        about = keys(COMMANDS[command].config).get(key)
        values = manual.choice_files(key) if key in own.groups else about.values if about else []
        return [found for one in values if (found := f"{key}={one}").startswith(word)]
    chosen = {group: entry.value for group, entry in own.groups.items()}
    chosen |= {group: value for group, _, value in (one.partition("=") for one in typed) if group in chosen}
    inner = [one for group, choice in chosen.items() for one in manual.manual_keys(group, choice)]
    return [f"{one}=" for one in dict.fromkeys([*own.groups, *own.keys, *inner]) if one.startswith(word)]
