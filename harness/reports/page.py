"""One HTML file that needs no other: a template with data in it as JSON.

`{{NAME}}` in a template stands for the file of that name beside it, such as `page.css`. A page shows every text of its
data literally, and only its own scripts and styles run: its Content-Security-Policy lists their hashes.
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
    """Return the whole page. data: as JSON has it, all numbers finite."""
    text, policy = _template(template)
    script = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.replace("{{policy}}", policy).replace("{{data}}", script)


@functools.cache
def _template(template: Path) -> tuple[str, str]:
    """Return (the template with its files in it, a Content-Security-Policy for its own styles and scripts only)."""
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
