"""What messages quote of a service's reply: its own error message, in brief and without secrets."""

from __future__ import annotations

import json
from typing import Any

from retrievers.redaction import redacted

QUOTED, SHOWN, READ = 300, 60, 20_000  # characters: quoted of a text, of a value, and searched for secrets before


def shown(value: Any) -> str:
    """The beginning of a value that a service has sent, without secrets."""
    text = redacted(repr(value)[:READ])
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def message(text: str) -> str:
    """The error message of a service's JSON, wherever such services have it; else the text itself."""
    try:
        return _said(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return next(filter(None, map(_said, content)), "")
    if not isinstance(content, dict):
        return ""
    keys = ("message", "reason", "msg", "detail", "error", "errors", "status")
    return next(filter(None, (_said(content[key]) for key in keys if key in content)), "")


def short(text: str) -> str:
    """The beginning of a text, cut where no secret is cut in two."""
    words = redacted(" ".join(text[:READ].split()))
    return words if len(words) <= QUOTED else f"{words[:QUOTED]}…"
