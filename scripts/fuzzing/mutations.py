"""Mutations of a file: of tokens, JSON values, encoding, bytes and packed files, and odd things in its place."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import random
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any


class Odd(Enum):
    MISSING = "missing"
    FOLDER = "folder"
    LOOP = "a link to itself"
    PIPE = "a pipe without a writer"


Content = bytes | Odd
Mutation = Callable[[bytes, random.Random], bytes]
LONG, DEEP = 300_000, 100_000  # characters, above csv's limit of a cell; levels, beyond any recursion limit

TEXTS = ("", " ", "0", "-1", "d1", "null", "nan", "inf", "-inf", "1e999", "1_0", "a,b", 'say "x"', "a\rb", "a\nb",
         "a\tb", "\ufeffx", "a\u2028b", "\x00", "\x1b[31m", "가" * 3, "e\u0301", "=1+1", "../../x", "/dev/null", "#",
         "x" * LONG)  # fmt: skip
RAW = ("null", "true", "false", "0", "-0.0", "1e999", "-1", "NaN", "Infinity", "-Infinity", "9" * 25, "9" * 5000, "1.5",
       "[]", "{}", '""', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', "[" * DEEP, "[" * 900 + "]" * 900, "x", "'a'",
       '{"a":1,"a":2}', "[[[]]]", "[null]", '{"":{}}', "2147483648", "9223372036854775808")  # fmt: skip
NESTED = ", ".join(f"&a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 9)}]" for i in range(9))  # 9^9 values
YAML = ("&a [*a]", "&a {x: *a}", "*nowhere", f"[{NESTED}]", "!!bool x", "!!timestamp x", "!!int ''", "!!binary x",
        "!!python/object/apply:os.getcwd []", "2024-02-31", "1:30:00", "0x10", "~", "???", "|", ">-", "{? [a]: b}",
        "{<<: {a: 1}}", "{a: {b: {c: 1}}}", "[[1], {a: 1}]", "${top_k}", "${nothing:1}", "${oc.env:HOME}", ".inf",
        "yes", "# x", "[" * 300 + "]" * 300, "defaults:", "  - mine", "  - override /gate: none", "hydra:")  # fmt: skip
MARKUP = ("<!DOCTYPE x [<!ENTITY e 'e'>]>", "&e;", "&#xD800;", "&#0;", "&#x110000;", "<!--", "<![CDATA[", "<?xml?>",
          "<pre>", "</pre>", "<tr>", "</tr>", "<td>", "</table>", "<textarea>", "<frameset>", "<svg>", "<math><mi>",
          "<template>", "<plaintext>", "<script>", "</p>", "</body>", "<html hidden>", "<a href=x>", "<",
          "<meta charset=euc-kr>", "<meta charset=zip>", "<hp:p>", "</hp:p>", "<hp:tr>", "<hp:tc>", "<hp:footNote>",
          "<hp:deleteBegin/>", "<hp:t>", "<hp:header>", "<x:y>", "<p" + " a=1" * 999 + ">", "\x0c")  # fmt: skip
PDF = ("0", "-1", "99", "2147483648", "9" * 400, "1e999", "null", "<<" * 3000, "[" * 3000, "(" * 99,
       "/Filter/FlateDecode", "/Kids[2 0 R]", "2 0 R")  # fmt: skip
BYTES = (b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\r", b"\n\n", b'"', b"\\", b"\xe2\x80\xa8")


def mutated(content: bytes, syntax: str, draw: random.Random) -> Content:
    """Return a file after one to three mutations. syntax: its suffix without the dot, such as jsonl."""
    if draw.random() < 0.01:
        return draw.choice(list(Odd))
    own = SYNTAXES.get(syntax, (_bytes,))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        content = draw.choice((*own, *own, *own, _bytes, _whole))(content, draw)
    return content


def _bytes(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    end = min(len(content), start + draw.choice((1, 1, 2, 8, 64, 1024)))
    piece = content[start:end]
    flipped = bytes(byte ^ 1 << draw.randrange(8) for byte in piece)
    new = draw.choice((bytes([draw.randrange(256)]), flipped, b"", piece * 2, piece[::-1], draw.choice(BYTES)))
    return content[:start] + new + content[end:]


def _whole(content: bytes, draw: random.Random) -> bytes:
    text = content.decode("utf-8", "replace")
    half, packed = content[: draw.randrange(len(content) + 1)], gzip.compress(content, 1)
    line_end = draw.choice((b"\r\n", b"\r", b"\n\n", b"\xe2\x80\xa8", b"\x85", b"\x0c"))
    return draw.choice((
        b"", half, content * 2, content + half, b"\xef\xbb\xbf" + content, text.encode("utf-16"),
        text.encode("utf-16-le", "surrogatepass"), text.encode("cp949", "replace"), packed,
        packed[: draw.randrange(40)], content.replace(b"\n", line_end), content.rstrip(b"\n"), b"\x1f\x8b" + content,
        b" " * LONG + content,
    ))  # fmt: skip


def _tokens(separators: str, odd: Sequence[str] = TEXTS) -> Mutation:
    """Return a mutation that omits, repeats, swaps, cuts or replaces (by `odd`) tokens between separators."""
    pattern = re.compile(separators.encode())

    def mutate(content: bytes, draw: random.Random) -> bytes:
        places = [0, *(place for found in pattern.finditer(content) for place in found.span()), len(content)]
        parts = [content[start:end] for start, end in itertools.pairwise(places)]
        at, other = draw.randrange(len(parts)), draw.randrange(len(parts))
        strange = draw.choice(odd).encode("utf-8", "surrogatepass")
        match draw.randrange(8):
            case 0:
                del parts[at : at + draw.choice((1, 2))]
            case 1:
                parts.insert(other, parts[at])
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts[at] = parts[at][: draw.randrange(len(parts[at]) + 1)]
            case 4:
                parts[at] *= draw.choice((2, 10, 2_000)) if len(parts[at]) < 100 else 2
            case 5:
                parts.insert(at, strange)
            case _:
                parts[at] = strange
        return b"".join(parts)

    return mutate


class Raw(str):
    """JSON text to insert as it is."""


class Pairs(list[list[Any]]):
    """A JSON object as [key, value] pairs: a key may occur twice."""


def _json(content: bytes, draw: random.Random) -> bytes:
    try:
        root = [json.loads(content, object_pairs_hook=lambda pairs: Pairs(map(list, pairs)))]
        _change(root, draw)
        return "".join(map(_dump, root)).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # an earlier mutation broke it, or nested it deeply
        return _bytes(content, draw)


def _json_line(content: bytes, draw: random.Random) -> bytes:
    lines = content.split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = _json(lines[at], draw) if lines[at].strip() else lines[at]
    return b"\n".join(lines)


def _change(root: list[Any], draw: random.Random) -> None:
    slots = list(_slots(root, [0]))
    (holder, at), (other_holder, other) = draw.choice(slots), draw.choice(slots)
    value = holder[at]
    match draw.randrange(8):
        case 2:
            holder[at] = draw.choice(TEXTS)
        case 3 if isinstance(value, list) and value:
            value.insert(draw.randrange(len(value) + 1), draw.choice(value))
        case 4 if isinstance(value, list) and value:
            del value[draw.randrange(len(value))]
        case 5:
            holder[at] = draw.choice(([value], Pairs([["x", value]]), str(value)[:50]))
        case 6 if isinstance(value, Pairs) and value:
            draw.choice(value)[0] = draw.choice((*TEXTS[:-1], draw.choice(value)[0]))
        case 7 if not isinstance(value, list) and not isinstance(other_holder[other], list):
            holder[at], other_holder[other] = other_holder[other], value
        case _:
            holder[at] = Raw(draw.choice(RAW))


def _slots(holder: list[Any], places: Sequence[int]) -> Iterator[tuple[list[Any], int]]:
    """Yield (list, index) of the values at these places of a JSON tree, and of all values inside them."""
    for at in places:
        yield holder, at
        value = holder[at]
        if isinstance(value, Pairs):
            for pair in value:
                yield from _slots(pair, [1])
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
    import pyarrow as pa
    from pyarrow import parquet

    with contextlib.suppress(Exception):  # rows that no table can hold, or a file that is broken already
        rows = parquet.read_table(io.BytesIO(content)).to_pylist()
        table = pa.Table.from_pylist(json.loads(_json(json.dumps(rows, ensure_ascii=False).encode(), draw)))
        if draw.random() < 0.3:
            at, kind = draw.randrange(table.num_columns), draw.choice((pa.binary(), pa.int64(), pa.bool_(), pa.null()))
            table = table.set_column(at, draw.choice((table.column_names[at], "x")), pa.nulls(table.num_rows, kind))
        parquet.write_table(table, written := io.BytesIO())
        return written.getvalue()
    return _bytes(content, draw)


def _packed(content: bytes, draw: random.Random) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [(name, archive.read(name)) for name in archive.namelist()] or [("mimetype", b"")]
    except Exception:  # broken by an earlier mutation
        return _bytes(content, draw)
    at = draw.randrange(len(entries))
    name, inside = entries[at]
    other = draw.choice(("Contents/section0.xml", "Contents/section9999.xml", "Contents/section-1.xml", "../x", "x/"))
    changed = [(name, draw.choice((_MARKUP, _MARKUP, _bytes, _whole))(inside, draw))]
    entries[at : at + 1] = draw.choice((changed, changed, [(other, inside)], [], [(name, inside)] * 2))
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # of names that occur twice
        for name, inside in entries:
            archive.writestr(name or "x", inside, draw.choice((0, 8, 8, 8, 12, 14)))  # stored, deflated, and others
    return file.getvalue()


_MARKUP, _LINES = _tokens("<[^>]*>", MARKUP), _tokens("\n")
SYNTAXES: dict[str, tuple[Mutation, ...]] = {
    "json": (_json,),
    "jsonl": (_json_line, _json_line, _LINES),
    "csv": (_tokens("[,\n]"), _LINES),
    "tsv": (_tokens("[\t\n]"), _LINES),
    "trec": (_tokens("[ \n]"), _LINES),
    "yaml": (_tokens(": |\n", YAML), _tokens("[ \n]", YAML), _tokens("\n", YAML)),
    "words": (_tokens("[=\n]"), _LINES),
    "parquet": (_parquet,),
    "html": (_MARKUP,),
    "hwpx": (_packed,),
    "xlsx": (_packed,),
    "pdf": (_tokens(r"/\w+|\d+|<<|>>|[\[\]()]", PDF),),
}


def place(path: Path, content: Content) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is Odd.FOLDER:
        path.mkdir()
    elif content is Odd.LOOP:
        path.symlink_to(path.name)
    elif content is Odd.PIPE:
        os.mkfifo(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
