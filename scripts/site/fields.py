"""Show the fields and arguments that a docstring lists, one `name: meaning` a line, as a list."""

from __future__ import annotations

import re

from griffe import Extension, Object

FIELD = re.compile(r"^((?:\*{0,2}[a-z_]\w*(?:, )?)+): (?=\S)")


class Fields(Extension):
    def on_object(self, *, obj: Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    """Turn each `name: meaning` line, with the indented lines below it, into an item of a list."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if found := FIELD.match(line):
            lines += ["", f"- `{found[1]}`: {line[found.end() :]}"]
            inside = True
        else:
            inside = inside and line.startswith("    ")
            lines.append(line)
    return "\n".join(lines)
