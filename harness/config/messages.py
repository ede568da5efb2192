"""Turn errors into messages for people. Errors of Hydra and OmegaConf are put in plain words, with suggestions."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from harness.config import manual, plugins
from harness.config.check import OTHERS, primary
from harness.config.command_list import COMMANDS
from harness.config.defaults import chosen_groups, commands_with, config_folders, file_settings, is_free
from harness.errors import BadInput, Failed, did_you_mean

# TAKE_VALUES: flags followed by a value. FLAGS: all flags.
TAKE_VALUES = {"-c", "--cfg", "-cd", "--config-dir", "-p", "--package"}
FLAGS = TAKE_VALUES | {"-h", "--help", "--version", "--resolve", "-m", "--multirun", "-sc", "--shell-completion"}


def split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (flags with their values, other words)."""
    flags: list[str] = []
    others: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        (flags if word.startswith("-") or _names(before, TAKE_VALUES) else others).append(word)
    return flags, others


def check_words(command: str, words: Sequence[str], commands: Collection[str]) -> None:
    """Raise BadInput for a word that is neither KEY=VALUE nor a flag. The message says what to write."""
    flags, others = split_flags(words)
    for flag in flags:
        if flag.startswith("-") and not _names(flag.partition("=")[0], FLAGS):
            raise BadInput(_option(flag, words, command))
    for word in others:
        if word.startswith("=") and word != "=":
            raise BadInput(f"{word!r} has no key. Write KEY=VALUE; `harness {command} --help` lists the keys.")
    if any(word.partition("=")[0].lstrip("+~") == "objective" for word in others):
        _check_objective(command)
    bare = [word for word in others if "=" not in word and not word.startswith("~")]
    if any(word == "=" or word.endswith("=") for word in others) and bare:
        spaced = " ".join(others).replace(" = ", "=").replace("= ", "=").replace(" =", "=")
        raise BadInput(f"Write KEY=VALUE without spaces: harness {command} {spaced}")
    if bare:
        raise BadInput(_bare(command, bare, commands))


def _check_objective(command: str) -> None:
    own = manual.manual(primary(command)).keys
    if "metric" in own and "objective" not in own:
        raise BadInput(
            f"objective is unknown here: it is set when a run is made. `harness {command}` ranks by the objective of "
            "most runs, and metric=NAME chooses another measure."
        )


def _names(word: str, flags: Collection[str]) -> bool:
    """Return whether a word is a flag or the beginning of a long flag. Both are accepted."""
    return word in flags or (word[:2] == "--" and len(word) > 2 and any(flag.startswith(word) for flag in flags))


def misplaced(words: Sequence[str], commands: Collection[str]) -> str | None:
    """Return the command line with its command moved to the front; None if it has no command."""
    for n in (2, 1):
        for place in range(1, len(words) - n + 1):
            name = " ".join(words[place : place + n])
            if name in commands:
                others = [*words[:place], *words[place + n :]]
                return shlex.join(["harness", *words[place : place + n], *others])
    return None


def unknown_key(key: str, command: str, words: Sequence[str]) -> str:
    """Return a message for a key that the composed config lacks. It says what to do instead."""
    key, folders = key.lstrip("+~"), config_folders(words)
    where = file_settings(words).get(key)
    start = f"{key} is unknown here" + (f" ({where.where})" if where else "")
    own, choices = manual.manual(primary(command)), chosen_groups(primary(command), words)
    if having := _having(key, own, folders):
        group, found = having
        lacking = f"{group}={choices[group]}"
        lacking = f"none of {lacking} has it" if "," in lacking else f"{lacking} does not have it"
        return f"{start}: {lacking}. Choose {group}={_any_of(found)}."
    if is_free(key, folders) and own.has(key):
        return f"{start}: a new name needs a plus sign: +{key}=VALUE."
    others = [one.replace("_", " ") for one in commands_with(key)]
    if others:
        return f"{start}. It is a key of `harness {'`, `harness '.join(others)}`."
    known = [*own.keys, *own.groups]
    if key.startswith("hydra."):
        from harness.config.leash import NUMBERS

        known = [f"hydra.{name}" for name in NUMBERS]
        if key in known:
            return f"{start}: the launcher does not have it. Choose another one: hydra/launcher=NAME."
    for group, choice in choices.items():
        known += manual.manual_keys(group, choice, folders)
    if near := _near(key, known):
        return f"{start}. Did you mean '{near}'?"
    near = _near(key, [one for group in own.groups for one in manual.all_keys(group, folders)])
    if near and (having := _having(near, own, folders)):
        return f"{start}. Did you mean '{near}', which {having[0]}={_any_of(having[1])} has?"
    return f"{start}. See `harness {command} --help`."


def _near(key: str, known: Sequence[str]) -> str | None:
    same = [one for one in known if one.rpartition(".")[2] == key.rpartition(".")[2]]
    return next(iter([*same, *difflib.get_close_matches(key, known, n=1, cutoff=0.6)]), None)


def _any_of(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _having(key: str, own: manual.Manual, folders: Sequence[Path] = ()) -> tuple[str, list[str]] | None:
    for group in own.groups:
        if group not in manual.RECIPES:
            found = [
                one for one in manual.choice_files(group, folders) if key in manual.manual_keys(group, one, folders)
            ]
            if found:
                return group, found
    return None


def _option(flag: str, words: Sequence[str], command: str) -> str:
    key, equals, value = flag.lstrip("-").partition("=")
    key = key.replace("-", "_")
    own = manual.manual(primary(command))
    known = [*own.keys, *own.groups, *(key for group in own.groups for key in manual.all_keys(group))]
    following = list(words[words.index(flag) + 1 :])[:1]
    if not equals:
        value = following[0] if following and "=" not in following[0] and following[0][0] != "-" else "VALUE"
    if key in known:
        given = flag if equals or value == "VALUE" else f"{flag} {value}"
        return f"{given}: write options without dashes, as {shlex.quote(f'{key}={value}')}."
    near = did_you_mean(flag, FLAGS) or did_you_mean(key, known)
    rest = f"Write KEY=VALUE; `harness {command} --help` lists the keys."
    return f"{flag} is not an option of `harness {command}`.{near} {rest}"


def _bare(command: str, bare: Sequence[str], subcommands: Collection[str]) -> str:
    own, (word, *rest) = manual.manual(primary(command)), bare
    key = word.rstrip(":")
    if near := did_you_mean(f"{command} {word}", [one for one in subcommands if one.startswith(f"{command} ")]):
        return f"There is no command '{command} {word}'.{near}"
    if command == "search":
        quoted = shlex.quote(text := " ".join(bare))
        return f"Put the query in quotation marks: harness search query={quoted if quoted != text else repr(text)}"
    if rest and (key in own.keys or key in own.groups or _having(key, own)):
        return f"Write {shlex.quote(f'{key}={rest[0]}')} instead of {' '.join([word, rest[0]])!r}."
    groups = [group for group in own.groups if word in manual.choice_files(group)]
    if groups:
        return f"{word!r} has no key. Did you mean {' or '.join(f'{group}={word}' for group in groups)}?"
    main = next(iter(COMMANDS[command].first), None)
    if main in own.keys:
        return f"{word!r} has no key. Did you mean {shlex.quote(f'{main}={word}')}?"
    if key in own.keys or key in own.groups:
        return f"{key} has no value. Write {key}=VALUE; `harness {command} --help` lists its values."
    return f"{word!r} has no key. Write KEY=VALUE; `harness {command} --help` lists the keys."


UNUSABLE = (errno.ENAMETOOLONG, errno.ELOOP)  # errors of paths that no system accepts
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LAUNCHERS = {"ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}  # launcher -> extra that installs it
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def explain(error: BaseException, command: str, words: Sequence[str]) -> str | None:
    """Return the message about bad input or a bad config; None for other errors."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
        return f"{error.filename}: {error.strerror}. Choose another folder: {OTHERS}."
    if isinstance(error, OSError) and error.errno in UNUSABLE:
        return f"{error.filename!s:.200}: {error.strerror}. Choose another path."
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    return " ".join([_hydra_message(error, command, words), *getattr(error, "__notes__", ())])


_ERRNO = re.compile(r"\[Errno (\d+)\] [^\n:]+: '([^'\n]+)'(?: -> '([^'\n]+)')?")


def failure(error: BaseException) -> str | None:
    """Return the message about a failure with a known reason, such as a full disk; None for other errors."""
    if isinstance(error, Failed):
        return str(error)
    if type(error).__module__.startswith("mlflow.") and (said := _ERRNO.search(str(error))):
        error = OSError(int(said[1]), os.strerror(int(said[1])), said[3] or said[2])  # MLflow keeps only texts
    if not isinstance(error, OSError) or error.errno not in (*FULL, *REFUSED):
        return None
    path = error.filename2 or error.filename or "Standard output or a temporary file"
    full = "Free some space (`harness doctor cache` lists and removes entries)"
    remedy = full if error.errno in FULL else "Allow this user to write there"
    return f"{path}: {error.strerror}. {remedy}, or choose another folder: {OTHERS}."


def _hydra_message(error: BaseException, command: str, words: Sequence[str]) -> str:
    text = str(error).strip()
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text += "\n" + str(error.__cause__)
    refused = re.search(r"BadInput raised while resolving interpolation: (.*)", text)
    if refused:
        return refused.group(1)
    if unknown := re.search(r"Could not override '([^']+)'", text):
        inner = re.search(rf"full_key: ({re.escape(unknown.group(1))}\.\S+)", text)  # a key inside the value
        return unknown_key((inner or unknown).group(1), command, words)
    choice = re.search(r"Could not find '([^']+)'\n\nAvailable options in '([^']+)':\n((?:\t.*\n?)+)", text)
    if choice:
        group, known = choice.group(2), choice.group(3).split()
        given = choice.group(1).rpartition("/")[2]
        broken = (one for one in plugins.installed_plugins() if one.problem and (group, given) in one.choices)
        if plugin := next(broken, None):
            return str(plugin.broken(plugin.problem))
        if extra := LAUNCHERS.get(given) if group == "hydra/launcher" else None:
            return f"{group}={given} is not installed. Install it: pip install -c constraints.txt -e '.[{extra}]'"
        return f"{group}={given}: there is no such choice.{did_you_mean(given, known)} Known: {', '.join(known)}."
    missing_group = re.search(r"Could not override '([^']+)'|Could not find '([^']+)'", text)
    hint = "" if missing_group else f"\nSee `harness {command} --help`."
    return re.sub(r"\n?(To append to your config use.*|Set the environment variable.*)", "", text) + hint
