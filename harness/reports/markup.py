"""Numbers and texts for people, Markdown for MLflow's description of a run, and self-contained HTML pages."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.text import counted
from harness.measures.objective import Objective
from harness.statistics.prediction_powered import NO_ESTIMATE, Estimate

ABSENT = "–"
TEMPLATES = Path(__file__).parent / "templates"
FILE = re.compile(r"\{\{(\w+\.(?:html|css|js))\}\}")

SNIPPET = 90  # maximum number of characters of a document in a list


@dataclass(frozen=True)
class Words:
    en: str
    ko: str


def number(value: float | None, sign: str = "") -> str:
    """Return a number with four decimals; a dash for None and NaN. sign: "+" also signs positive numbers."""
    return ABSENT if value is None or math.isnan(value) else f"{value:{sign}.4f}"


def signed(value: float | None) -> str:
    """Return a difference with its sign; "0" for no difference."""
    return "0" if value == 0 else number(value, "+")


def p_value(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ABSENT
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def rough(value: float) -> str:
    """Return a number with two digits, or a whole number if it is larger than that."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}"  # 99.7 would become 1e+02


def percent(value: float, digits: int = 0) -> str:
    """Return a share in percent. A share below 1 that would round to 100 becomes `> 99 %`."""
    rounded = f"{100 * value:.{digits}f}"
    return "> 99 %" if rounded == "100" and value < 1 else f"{rounded} %"


def interval(low: float | None, high: float | None, absent: str = ABSENT) -> str:
    """Return the ends of an interval, or `absent` if an end is unknown."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return absent
    return f"{low:.3f} – {high:.3f}"


def rounded_or_none(value: float) -> float | None:
    """Return the value rounded to six decimals for JSON; None for infinite numbers and NaN."""
    return round(float(value), 6) if math.isfinite(value) else None


def rounded_interval(mean: float, low: float, high: float) -> dict[str, float | None]:
    return {"mean": rounded_or_none(mean), "low": rounded_or_none(low), "high": rounded_or_none(high)}


def snippet(text: str, most: int = SNIPPET) -> str:
    """Return the beginning of a text on one line of at most `most` characters."""
    line = " ".join(text[: 20 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def one_line(text: str) -> str:
    """Return a text on one line, without invisible characters."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def literal(text: str) -> str:
    """Escape a text for Markdown on one line. The Markdown source stays readable."""
    quoted = re.sub(r"([\\`*_\[\]{}|#~!$])", r"\\\1", html.escape(one_line(text), quote=False))
    return re.sub(r"(?<!\w)@|:(?=//)", _reference, quoted)


def marked(text: str) -> str:
    """Escape a text for MLflow's Markdown with character references, since MLflow ignores backslashes."""
    line = " ".join(html.escape(text, quote=False).split())
    line = re.sub(r"[\\`*_{}\[\]|#~!@]|:(?=//)", _reference, line)
    return re.sub(r"^(\d+)([.)])|^([-+=])", lambda found: f"{found[1] or ''}&#{ord(found[2] or found[3])};", line)


def _reference(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. The cells must already be Markdown."""
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def estimated(found: Estimate, name: str) -> str:
    """Return an estimate with its interval, or the reason why there is no estimate.

    Example: `Estimate of hit@3: 0.6510 (95 % interval 0.584 – 0.718; people have checked 50 of 300 queries)`.
    """
    ends = interval(found.low, found.high, absent="")
    queries = f"people have checked {found.checked:,} of {counted(found.checked + found.others, 'query')}"
    reason = found.note.removeprefix(NO_ESTIMATE)
    said = "; ".join([f"95 % interval {ends}"] * bool(ends) + [queries] + [reason] * bool(reason))
    return (
        f"No estimate of {name} ({said})"
        if math.isnan(found.value)
        else f"Estimate of {name}: {number(found.value)} ({said})"
    )


def raw(found: Estimate, value: float) -> str:
    """Return a phrase with the raw mean, over labels by people and by a model. found: the estimate of that mean."""
    return f"raw {value:.4f}, {raw_share(found)}"


def raw_share(found: Estimate) -> str:
    """Return a phrase with the share of the labels that a model wrote."""
    return f"with a model's labels for {100 * found.share:.0f} % of the queries"


def result(one: Objective) -> str:
    """Return the first line of a run's description."""
    if found := one.estimate:
        return f"**{marked(estimated(found, one.title))}**; {raw(found, one.value)}"
    ends = interval(one.low, one.high, absent="")
    return f"**{marked(one.name)} {one.value:.4f}**, {one.kind}{f' (95 % interval {ends})' if ends else ''}"


def levels_text(levels: Sequence[int], thresholds: Sequence[float]) -> str:
    """Return the rule of a gate in words, for example `3 documents from 3.821, below that none`."""
    steps: list[str] = []
    for level, threshold in zip(levels, thresholds, strict=False):
        if threshold < math.inf:
            rest = "for all others" if steps else "for every query"
            steps.append(f"{counted(level, 'document')} {f'from {threshold:.4g}' if threshold > -math.inf else rest}")
    if steps and thresholds[-1] > -math.inf:
        steps.append("below that none")
    return ", ".join(steps) or "withholds all documents"


def fill_page(template: Path, data: Mapping[str, Any]) -> str:
    """Return the page: the template with the data as JSON. `{{NAME}}` in a template includes the file NAME beside it.

    The scripts of a page must show all texts of the data as plain text, never as HTML. The page's
    Content-Security-Policy allows only its own scripts and styles. data: numbers must be finite.
    """
    text, policy = _template(template)
    script = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.replace("{{policy}}", policy).replace("{{data}}", script)


@functools.cache
def _template(template: Path) -> tuple[str, str]:
    """Return (the template with all included files, the Content-Security-Policy of its pages)."""
    text = FILE.sub(lambda found: template.with_name(found[1]).read_text("utf-8"), template.read_text("utf-8"))
    allowed = {
        kind: [
            hashlib.sha256(body.encode()).digest() for body in re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        ]
        for kind in ("style", "script")
    }
    rules = [
        " ".join([f"{kind}-src", *(f"'sha256-{base64.b64encode(one).decode()}'" for one in hashes)])
        for kind, hashes in allowed.items()
    ]
    return text, "; ".join(["default-src 'none'", "img-src data:", *rules, "base-uri 'none'", "form-action 'none'"])
