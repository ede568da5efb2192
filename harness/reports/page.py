"""A self-contained HTML file: a template with data as JSON. `{{NAME}}` in it includes the file NAME beside it.

A page must show every text of its data literally. Its Content-Security-Policy admits its own scripts and styles alone.
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

TEMPLATES = Path(__file__).parent / "templates"
FILE = re.compile(r"\{\{(\w+\.(?:html|css|js))\}\}")


def fill_page(template: Path, data: Mapping[str, Any]) -> str:
    """Return the page. data: can be written as JSON, with finite numbers."""
    text, policy = _template(template)
    script = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.replace("{{policy}}", policy).replace("{{data}}", script)


@functools.cache
def _template(template: Path) -> tuple[str, str]:
    """Return (the template with its files included, its Content-Security-Policy)."""
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
