"""Convert overrides `key=value` between the form that people type and the form that Hydra reads."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from harness.config import components, manual
from harness.config.command_list import config_class
from harness.config.defaults import Setting, chosen_groups, config_folders
from harness.config.schema import Key, keys

KeyOf = Callable[[str], Key | None]


def lookup(name: str, words: Sequence[str]) -> KeyOf:
    """Return a function from a dotted key to its `Key`, or to None if a command with these words lacks the key."""
    known, folders = keys(config_class(name)), config_folders(words)

    @functools.cache
    def choices() -> dict[str, str]:
        return chosen_groups(name, words)

    @functools.cache
    def find(key: str) -> Key | None:
        if key in known or "." not in key:
            return known.get(key)
        group, _, argument = key.replace(".runtime.", ".").partition(".")
        argument = argument.partition(".")[2] if group == "retriever" else argument
        targets = [
            one for choice in choices().get(group, "").split(",") for one in manual.targets(group, choice, folders)
        ]
        found = (components.argument_keys(components.target_class({"_target_": one}, group)) for one in targets)
        return next((one[argument] for one in found if argument in one), None)

    return find


def quoted_override(word: str, key_of: KeyOf, multirun: bool = False) -> str:
    """Quote the value of a text key, and any value that Hydra would refuse.

    In a multirun, commas separate values, and each value is quoted.
    """
    key, equals, value = word.partition("=")
    if not equals or word.startswith("-") or _is_plain(value):
        return word
    about = key_of(key.lstrip("+~"))
    if about and about.is_texts and value[:1] == "[" and value[-1:] == "]":
        return f"{key}=[{','.join(_quote(part.strip()) for part in value[1:-1].split(','))}]"
    if about and about.is_text:
        parts = value.split(",") if multirun else [value]
        return key + "=" + ",".join(_quote(part) for part in parts)
    return word if _parses(word) else f"{key}={_quote(value)}"


def unquoted(word: str) -> str:
    """Return an override without the quotation marks around its whole value, and around names in a list."""
    key, _, value = word.partition("=")
    if value[:1] == "[":
        return f"{key}={_NAMES.sub(lambda name: name[1] if name[1].lower() not in _WORDS else name[0], value)}"
    if len(value) < 2 or value[0] != "'" or value[-1] != "'":
        return word
    return f"{key}=" + re.sub(r"\\+(?='|$)", lambda slashes: slashes.group()[: len(slashes.group()) // 2], value[1:-1])


def override_of(one: Setting, key_of: KeyOf) -> str:
    """Return a setting as an override with one value."""
    if one.is_choice:
        return f"{one.key}={'null' if one.value is None else one.value}"
    about = key_of(one.key)
    text = about and about.is_text and one.value is not None and not isinstance(one.value, list)
    return f"{one.key}={_literal(one.text if text else one.value)}"


def as_typed(key: str, value: Any) -> str:
    """Return the override that sets a key to a value, as people type it."""
    return unquoted(f"{key}={_literal(value)}")


def _is_plain(value: str) -> bool:
    """Return whether a value is a name or a path of Latin letters. Hydra reads such a value as the same text."""
    return re.fullmatch(r"[A-Za-z_/][A-Za-z_/.-]*[A-Za-z_/-]", value) is not None and value.lower() not in _WORDS


_NAMES = re.compile(r"(?<=[\[,])'([A-Za-z_][\w@.-]*)'(?=[\],])", re.ASCII)
_WORDS = ("null", "true", "false", "nan", "inf")


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _escaped(value) if isinstance(value, str) else repr(value)


def _quote(value: str) -> str:
    if value in ("", "null", "???") or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\""):
        return value
    return _escaped(value)


def _escaped(value: str) -> str:
    escaped = re.sub(r"\\+(?='|$)", lambda slashes: slashes.group() * 2, value)
    return "'" + escaped.replace("'", "\\'") + "'"


def _parses(word: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(word)
    except (HydraException, ValueError):  # ValueError: a number has more digits than Python reads
        return False
    return True
