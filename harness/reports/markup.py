"""Texts, tables and numbers in Markdown, as MLflow shows it in the description of a run."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

from harness.evaluation.scores import Summary


def marked(text: str) -> str:
    """A text that Markdown shows as it is, in a cell too: what may mean something there is written by its number."""
    line = " ".join(html.escape(text, quote=False).split())
    line = re.sub(r"[\\`*_{}\[\]|#~!@]|:(?=//)", lambda found: f"&#{ord(found[0])};", line)
    return re.sub(r"^(\d+)([.)])|^([-+=])", lambda found: f"{found[1] or ''}&#{ord(found[2] or found[3])};", line)


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """header, rows: cells in Markdown."""
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def result(name: str, one: Summary) -> str:
    """The first line of a description: MLflow folds what follows the first few."""
    return f"**{marked(name)} {one.mean:.4f}**{f' (95 % interval {interval(one)})' if one.low == one.low else ''}"


def interval(one: Summary) -> str:
    return f"{one.low:.3f} – {one.high:.3f}" if one.low == one.low else "–"


def description(parts: Iterable[str]) -> str:
    """Paragraphs, without empty ones."""
    return "\n\n".join(filter(None, parts))


def finite(value: float) -> float | None:
    """A number as JSON has it, to six decimals; None for one that is not finite."""
    return round(float(value), 6) if math.isfinite(value) else None


SNIPPET = 90  # characters of a document shown in a list


def snippet(text: str) -> str:
    line = " ".join(text[: 20 * SNIPPET].split())
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"
