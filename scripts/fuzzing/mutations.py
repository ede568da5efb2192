"""Mutations of a file: of JSON values, lines, fields, npy headers, the encoding and single bytes, or of what is there.

All are drawn from one random generator, so that a seed repeats them.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np


class Odd(Enum):
    """What lies in the place of a file."""

    MISSING = "missing"
    FOLDER = "folder"
    LOOP = "a link to itself"
    PIPE = "a pipe that nobody writes to"


Content = bytes | Odd
LONG = 300_000  # characters: above csv's limit of a cell
DEEP = 100_000  # levels of nesting: beyond any recursion limit

TEXTS = ("", " ", "0", "-1", "d1", "null", "nan", "inf", "-inf", "1e999", "1_0", "a,b", 'say "x"', "a\rb", "a\nb",
         "a\tb", "\ufeffx", "a\u2028b", "\x00", "\x1b[31m", "가" * 3, "e\u0301", "=1+1", "../../x", "/dev/null",
         "x" * LONG)  # fmt: skip
RAW = ("null", "true", "false", "0", "-0.0", "1e999", "-1", "NaN", "Infinity", "-Infinity", "9" * 25, "9" * 5000, "1.5",
       "[]", "{}", '""', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', "[" * DEEP, "[" * 900 + "]" * 900, "x", "'a'",
       '{"a":1,"a":2}', "[[[]]]", "[null]", '{"":{}}', "2147483648", "9223372036854775808")  # fmt: skip

NESTED = ", ".join(f"&a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 9)}]" for i in range(9))  # 9^9 values
YAML = ("&a [*a]", "&a {x: *a}", "*nowhere", f"[{NESTED}]", "!!bool x", "!!timestamp x", "!!int ''", "!!binary x",
        "!!python/object/apply:os.getcwd []", "2024-01-31", "2024-02-31", "1:30:00", "0x10", "~", "???", "|", ">-",
        "{? [a]: b}", "{<<: {a: 1}}", "{a: {b: {c: 1}}}", "[[1], {a: 1}]", "${top_k}", "${nothing:1}", "${oc.env:HOME}",
        "9" * 5000, ".inf", ".nan", "1e999", "yes", "# x", "[" * 300 + "]" * 300)  # fmt: skip


MARKUP = ("<!DOCTYPE x [<!ENTITY e 'e'>]>", "&e;", "&#xD800;", "&#0;", "&#x110000;", "<!--", "<![CDATA[", "<?xml?>",
          "<pre>", "</pre>", "<tr>", "</tr>", "<td>", "</table>", "<textarea>", "<frameset>", "<svg>", "<math><mi>",
          "<template>", "<plaintext>", "<script>", "<select>", "</p>", "</body>", "<html hidden>", "<a href=x>", "<",
          "<meta charset=euc-kr>", "<meta charset=zip>", "<hp:p>", "</hp:p>", "<hp:tr>", "<hp:tc>", "<hp:footNote>",
          "<hp:deleteBegin/>", "<hp:t>", "<hp:header>", "<x:y>", "<p" + " a=1" * 999 + ">", "\x0c")  # fmt: skip


TOKENS = (b"0", b"-1", b"1", b"2", b"3", b"99", b"2147483648", b"9" * 400, b"1e999", b"null", b"", b"<<" * 3000,
          b"[" * 3000, b"(" * 99, b"/Filter/FlateDecode", b"/Kids[2 0 R]", b"2 0 R")  # fmt: skip


class Raw(str):
    """JSON text that stands for itself."""


class Pairs(list[list[Any]]):
    """A JSON object as [key, value] pairs, so that a key may occur twice."""


def place(path: Path, content: Content) -> None:
    """Put content, or what lies in its place, at a path where nothing is."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is Odd.FOLDER:
        path.mkdir()
    elif content is Odd.LOOP:
        path.symlink_to(path.name)
    elif content is Odd.PIPE:
        os.mkfifo(path)


def mutated(content: bytes, syntax: str, draw: random.Random) -> Content:
    """One to three mutations of a file. syntax: its suffix without the dot, such as jsonl."""
    if draw.random() < 0.01:
        return draw.choice(list(Odd))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        own = SYNTAXES.get(syntax, ())
        kinds = (*own, *own, *own, _bytes, _whole) if own else (_bytes, _bytes, _bytes, _whole)
        content = draw.choice(kinds)(content, draw)
    return content


def _bytes(content: bytes, draw: random.Random) -> bytes:
    """Flip, cut, repeat, move or insert bytes."""
    start = draw.randrange(len(content) + 1)
    end = min(len(content), start + draw.choice((1, 1, 2, 8, 64, 1024)))
    piece = content[start:end]
    new = draw.choice(
        (
            bytes([draw.randrange(256)]),
            bytes(byte ^ 1 << draw.randrange(8) for byte in piece),
            b"",
            piece * 2,
            piece[::-1],
            draw.choice((b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\r", b"\n\n", b'"', b"\\", b"\xe2\x80\xa8")),
        )
    )
    return content[:start] + new + content[end:]


def _whole(content: bytes, draw: random.Random) -> bytes:
    """Another encoding or line end, cut off, repeated, packed, or empty."""
    text = content.decode("utf-8", "replace")
    half = content[: draw.randrange(len(content) + 1)]
    return draw.choice(
        (
            lambda: b"",
            lambda: half,
            lambda: content * 2,
            lambda: content + half,
            lambda: b"\xef\xbb\xbf" + content,
            lambda: text.encode("utf-16"),
            lambda: text.encode("utf-16-le", "surrogatepass"),
            lambda: text.encode("cp949", "replace"),
            lambda: gzip.compress(content, 1),
            lambda: gzip.compress(content, 1)[: draw.randrange(40)],
            lambda: content.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\n\n", b"\xe2\x80\xa8", b"\x85", b"\x0c"))),
            lambda: content.rstrip(b"\n"),
            lambda: b"\x1f\x8b" + content,
            lambda: b" " * LONG + content,
        )
    )()


def _lines(content: bytes, draw: random.Random) -> bytes:
    """Lines left out, repeated, swapped, joined or cut."""
    lines = content.split(b"\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.randrange(6):
        case 0:
            del lines[i]
        case 1:
            lines.insert(j, lines[i])
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case 3:
            lines[i] = lines[i][: draw.randrange(len(lines[i]) + 1)]
        case 4:
            lines[i : i + 2] = [b"".join(lines[i : i + 2])]
        case _:
            lines.insert(
                i, draw.choice((b"", b" ", b"\xef\xbb\xbf", b"[]", b"{}", b"null", b'"', b"#", b",,,", b"\x00"))
            )
    return b"\n".join(lines)


def _fields(separator: str) -> Callable[[bytes, random.Random], bytes]:
    """Fields of a line left out, repeated, swapped or replaced; or two columns swapped in all lines."""

    def mutate(content: bytes, draw: random.Random) -> bytes:
        rows = [line.split(separator) for line in content.decode("utf-8", "surrogateescape").split("\n")]
        if draw.random() < 0.2:
            one, other = draw.randrange(4), draw.randrange(4)
            for cells in rows:
                if max(one, other) < len(cells):
                    cells[one], cells[other] = cells[other], cells[one]
        else:
            cells = draw.choice(rows)
            at = draw.randrange(len(cells))
            cells[at : at + 1] = draw.choice(
                ([], [cells[at]] * 2, [draw.choice(TEXTS)], [f'"{cells[at]}'], [cells[at], ""])
            )
        return "\n".join(separator.join(cells) for cells in rows).encode("utf-8", "surrogateescape")

    return mutate


def _yaml(content: bytes, draw: random.Random) -> bytes:
    """A value replaced, a key or a line moved into or out of a mapping, or a key that builds on another file."""
    rows = content.decode("utf-8", "surrogateescape").split("\n")
    at = draw.randrange(len(rows))
    key, colon, _ = rows[at].partition(": ")
    match draw.randrange(5):
        case 0 | 1:
            rows[at] = f"{key}: {draw.choice(YAML)}" if colon or key[-1:] != ":" else f"{key} {draw.choice(YAML)}"
        case 2:
            rows[at] = draw.choice(("  ", "- ", "? ", "&a ", "! ")) + rows[at]
        case 3:
            rows[at] = rows[at].removeprefix("  ")
        case _:
            rows.insert(
                at, draw.choice(("defaults:", "  - mine", "  - base", "  - override /gate: none", "hydra:", key))
            )
    return "\n".join(rows).encode("utf-8", "surrogateescape")


def _json(content: bytes, draw: random.Random) -> bytes:
    """A value somewhere in the JSON replaced, left out, repeated, wrapped or moved."""
    try:
        root = [json.loads(content, object_pairs_hook=lambda pairs: Pairs(map(list, pairs)))]
        _change(root, draw)
        return "".join(map(_dump, root)).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # an earlier mutation broke it, or nested it deeply
        return _bytes(content, draw)


def _json_line(content: bytes, draw: random.Random) -> bytes:
    """`_json` of one line."""
    lines = content.split(b"\n")
    i = draw.randrange(len(lines))
    if lines[i].strip():
        lines[i] = _json(lines[i], draw)
    return b"\n".join(lines)


def _change(root: list[Any], draw: random.Random) -> None:
    """Change a node of a JSON tree whose only top element is root[0]."""
    slots = list(_slots(root, (0,)))
    holder, at = draw.choice(slots)
    value = holder[at]
    other_holder, other = draw.choice(slots)
    match draw.randrange(8):
        case 0 | 1 | 2:
            holder[at] = draw.choice((Raw(draw.choice(RAW)), draw.choice(TEXTS)))
        case 3 if isinstance(value, list):
            if value:
                value.insert(draw.randrange(len(value) + 1), draw.choice(value))
        case 4 if isinstance(value, list):
            if value:
                del value[draw.randrange(len(value))]
        case 5:
            holder[at] = draw.choice(([value], Pairs([["x", value]]), str(value)[:50]))
        case 6 if isinstance(value, Pairs):
            if value:
                draw.choice(value)[0] = draw.choice((*TEXTS[:-1], draw.choice(value)[0]))
        case _:
            if not isinstance(value, list) and not isinstance(other_holder[other], list):
                holder[at], other_holder[other] = other_holder[other], value
            else:
                holder[at] = Raw(draw.choice(RAW))


def _slots(holder: list[Any], places: Iterable[int]) -> Iterator[tuple[list[Any], int]]:
    """(list, index) of the values at these places of a JSON tree, and of all values within them."""
    for at in places:
        yield holder, at
        value = holder[at]
        if isinstance(value, Pairs):
            for pair in value:
                yield from _slots(pair, (1,))
        elif isinstance(value, list):
            yield from _slots(value, range(len(value)))


def _dump(node: Any) -> str:
    if isinstance(node, Raw):
        return node
    if isinstance(node, Pairs):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_dump(value)}" for key, value in node) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(_dump, node)) + "]"
    return json.dumps(node, ensure_ascii=False)


def _parquet(content: bytes, draw: random.Random) -> bytes:
    """A value somewhere in the rows replaced, or a column of another type or name."""
    import pyarrow as pa
    from pyarrow import parquet

    with contextlib.suppress(Exception):  # rows that no table can hold, or a file that is broken already
        rows = parquet.read_table(io.BytesIO(content)).to_pylist()
        changed = _json(json.dumps(rows, ensure_ascii=False).encode(), draw)
        table = pa.Table.from_pylist(json.loads(changed))
        if draw.random() < 0.3 and table.num_columns:
            at = draw.randrange(table.num_columns)
            kind = draw.choice((pa.binary(), pa.int64(), pa.float64(), pa.bool_(), pa.null(), pa.timestamp("us")))
            empty = pa.nulls(table.num_rows, kind)
            table = table.set_column(at, draw.choice((table.column_names[at], "x")), empty)
        written = io.BytesIO()
        parquet.write_table(table, written)
        return written.getvalue()
    return _bytes(content, draw)


def _npy(content: bytes, draw: random.Random) -> bytes:
    """An array of another type, shape or order, or with another header."""
    kinds: Sequence[Callable[[], np.ndarray]] = (
        lambda: np.zeros(0),
        lambda: np.array(1.0),
        lambda: np.full((3, 2), np.nan),
        lambda: np.array(["a", "b"]),
        lambda: np.asfortranarray(np.ones((2, 3), np.float32)),
        lambda: np.ones(4, dtype=[("a", "i4"), ("b", "f8")]),
        lambda: np.ones(2, dtype=">i8"),
    )
    if draw.random() < 0.5:
        file = io.BytesIO()
        np.save(file, draw.choice(kinds)(), allow_pickle=False)
        return file.getvalue()
    shape = draw.choice((b"(999999999999,)", b"(-1,)", b"()", b"(0, 0)", b"(1e9,)", b"('a',)", b"(1, 2, 3)"))
    start, end = content.find(b"("), content.find(b")") + 1
    return content[:start] + shape + content[end:]


def _markup(content: bytes, draw: random.Random) -> bytes:
    """A tag left out, repeated, moved or replaced, or elements nested many times."""
    parts = re.split(rb"(<[^>]*>)", content)
    at, other = draw.randrange(len(parts)), draw.randrange(len(parts))
    tag = draw.choice(parts[1::2] or [b"<p>"])
    match draw.randrange(6):
        case 0:
            del parts[at]
        case 1:
            parts.insert(other, tag)
        case 2:
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            parts[at] = draw.choice(MARKUP).encode()
        case 4:
            parts.insert(at, tag * draw.choice((10, 2_000)))
        case _:
            parts[at] = draw.choice(TEXTS).encode()
    return b"".join(parts)


def _packed(content: bytes, draw: random.Random) -> bytes:
    """A file in a zip archive changed, renamed, left out or repeated, or packed in another way."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:  # broken by an earlier mutation
        return _bytes(content, draw)
    at = draw.randrange(len(entries) or 1)
    name, inside = entries[at] if entries else ("mimetype", b"")
    new = draw.choice(("Contents/section0.xml", "Contents/section9999.xml", "Contents/section-1.xml", "../x", "x/"))
    entries[at : at + 1] = draw.choice(
        (
            [(name, _markup(inside, draw))],
            [(name, _markup(inside, draw))],
            [(name, _bytes(inside, draw))],
            [(name, _whole(inside, draw))],
            [(new, inside)],
            [],
            [(name, inside)] * 2,
        )
    )
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # of names that occur twice
        for name, inside in entries:
            archive.writestr(name or "x", inside, draw.choice((0, 8, 8, 8, 12, 14)))  # stored, deflated, and others
    return file.getvalue()


def _objects(content: bytes, draw: random.Random) -> bytes:
    """A number, name or delimiter of a PDF replaced, or two of them swapped."""
    parts = re.split(rb"(/\w+|\d+|<<|>>|[\[\]()]|\w+)", content)
    if len(parts) < 2:
        return _bytes(content, draw)
    at, other = (draw.randrange(len(parts) // 2) * 2 + 1 for _ in range(2))
    if draw.random() < 0.3:
        parts[at], parts[other] = parts[other], parts[at]
    else:
        parts[at] = draw.choice((*TOKENS, parts[other]))
    return b"".join(parts)


SYNTAXES: dict[str, tuple[Callable[[bytes, random.Random], bytes], ...]] = {
    "json": (_json,),
    "jsonl": (_json_line, _json_line, _lines),
    "csv": (_fields(","), _lines),
    "tsv": (_fields("\t"), _lines),
    "trec": (_fields(" "), _lines),
    "yaml": (_yaml, _yaml, _fields(": "), _fields(" "), _lines),
    "words": (_fields("="), _fields("="), _lines),
    "parquet": (_parquet,),
    "npy": (_npy,),
    "html": (_markup,),
    "hwpx": (_packed,),
    "xlsx": (_packed,),
    "pdf": (_objects,),
}


def remove(path: Path) -> None:
    """Remove what `place` put there."""
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            remove(inner)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
