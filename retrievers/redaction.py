"""Removes secrets from texts, such as error messages. Code that reads a secret must register its variable here."""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Collection, Iterator
from urllib.parse import unquote

HIDDEN = "[key]"
SHORTEST = 6  # minimum number of characters of a secret; shorter values are placeholders for services that need no key
WORD = 8  # secrets with fewer characters are matched only as whole words
READ, SHOWN = 20_000, 60  # how many characters of a value are searched for secrets, and how many are shown

_USER, _PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
_VARIABLES = {  # libraries read these variables; if a value is an address, only its login is secret
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    _PASSWORD,
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_URI",
    "RAY_AUTH_TOKEN",
    "WANDB_API_KEY",
    *(name for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())),
}
_ESCAPED = re.compile(
    r"\\+u([0-9a-f]{4})|\\+x([0-9a-f]{2})|%(?:25)*([0-9a-f]{2})|&#x0*([0-9a-f]{1,5});|&#0*([0-9]{1,6});|\\+([^ux])",
    re.DOTALL | re.IGNORECASE,
)
_ESCAPED_OR_PLAIN = re.compile(f"{_ESCAPED.pattern}|.", _ESCAPED.flags)
_PLAIN = re.compile(".", re.DOTALL)
_NOISE = re.compile("[^0-9A-Za-z]+")


def register(*variables: str) -> None:
    _VARIABLES.update(variables)


def redacted(text: str, shortest: int = SHORTEST) -> str:
    """Replace secrets of at least `shortest` characters by [key].

    A service may quote a secret unchanged, in base64 (as headers encode `user:password`), or escaped as in JSON,
    Python, HTML or an address: all these forms are found. A secret of 8 or more letters and digits, with at least one
    digit, is also found in any letter case, and with white space and punctuation between its characters. A secret
    without a digit is not found in this way: the words `not needed` would match the secret `notneeded`.
    """
    secrets = {one for one in _secrets() if len(one) >= shortest}
    return _without(_without(text, secrets, escapes=False), secrets, escapes=True) if secrets else text


def shown_value(value: object) -> str:
    """Return the start of a value's `repr`, without secrets, for a message."""
    try:
        text = redacted(repr(value)[:READ])
    except Exception:  # `repr` fails for integers of thousands of digits, and for some third-party classes
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _secrets() -> Iterator[str]:
    for name in sorted(_VARIABLES):
        yield from _forms(os.environ.get(name, "").strip())
    if password := os.environ.get(_PASSWORD):
        yield _encoded(f"{os.environ.get(_USER, '')}:{password}")


def _forms(value: str) -> Iterator[str]:
    """Yield a value and its secret parts: the token after `Bearer`, and the password after `user:`."""
    if "://" in value:
        login = unquote(value.partition("://")[2].partition("/")[0].rpartition("@")[0])
        yield from _forms(login) if ":" in login else ()
        return
    word = value.rpartition(" ")[2]
    for one in (value, word, _decoded(word)):
        for part in (one, one.partition(":")[2]):
            yield from (part, _encoded(part))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode().rstrip("=")


def _decoded(word: str) -> str:
    try:
        login = base64.b64decode(word, validate=True).decode()
    except ValueError:
        return ""
    return login if ":" in login and login.isprintable() else ""


def _without(text: str, secrets: Collection[str], escapes: bool) -> str:
    """Remove secrets from a text. escapes: whether to read escapes as the characters that they stand for."""
    if escapes:
        secrets = [_ESCAPED.sub(_meaning, one) for one in secrets]
    meant = _ESCAPED.sub(_meaning, text) if escapes else text
    letters = _NOISE.sub("", meant).lower()
    plain, bare = [], []
    for one in secrets:
        stripped = _NOISE.sub("", one).lower()
        if len(stripped) < WORD or not re.search("[0-9]", stripped):
            plain += [rf"(?<!\w){re.escape(one)}(?!\w)" if len(one) < WORD else re.escape(one)] if one in meant else []
        elif stripped in letters:
            bare.append(re.escape(stripped))
    if not plain and not bare:
        return text
    characters = (_ESCAPED_OR_PLAIN if escapes else _PLAIN).finditer(text)
    units = [(_meaning(one), one.start(), one.end()) for one in characters]
    named = [unit for unit in units if unit[0].isascii() and unit[0].isalnum()]
    spans = [*_spans("".join(one for one, *_ in units), units, plain)]
    spans += _spans("".join(one.lower() for one, *_ in named), named, bare)
    return _cut(text, sorted(spans))


def _meaning(match: re.Match[str]) -> str:
    if not match.lastindex:
        return match[0]
    value = match[match.lastindex]
    if match.lastindex == 6:
        return " " if value in "nrtfv" else value
    return chr(int(value, 10 if match.lastindex == 5 else 16))


def _spans(read: str, units: list[tuple[str, int, int]], patterns: list[str]) -> Iterator[tuple[int, int]]:
    for pattern in patterns:
        for match in re.finditer(pattern, read):
            yield units[match.start()][1], units[match.end() - 1][2]


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    parts, end = [], 0
    for first, last in spans:
        if first >= end:
            parts += [text[end:first], HIDDEN]
        end = max(end, last)
    return "".join((*parts, text[end:]))
