"""One HTML file that needs no other: a template with data in it as JSON.

Templates share their look and their helpers, which stand beside them: `page.css` and `page.js`. Whatever texts the data
hold, they are shown as texts: a page's scripts and styles are named by their hashes, and no others run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def filled(template: Path, told: Mapping[str, Any]) -> str:
    """The whole page. told: plain JSON, without numbers that are not finite."""
    text, policy = _template(template)
    data = json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.replace("{{policy}}", policy).replace("{{data}}", data)


@functools.cache
def _template(template: Path) -> tuple[str, str]:
    """The template with what it shares, and a Content-Security-Policy that allows its own styles and scripts alone."""
    text = template.read_text("utf-8")
    for name in ("page.css", "page.js"):
        text = text.replace(f"{{{{{name}}}}}", template.with_name(name).read_text("utf-8"))
    allowed = {
        kind: " ".join(_hashed(body) for body in re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL))
        for kind in ("style", "script")
    }
    rules = [f"{kind}-src {hashes}" for kind, hashes in allowed.items()]
    return text, "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'"])


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
