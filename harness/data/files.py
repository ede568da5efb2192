"""Reading what people bring: lines, JSON and single values, refused with file and line where they are wrong.

Files are UTF-8, with or without a BOM and CRLF, plain or gzipped (told by content). Lines count from 1.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import re
import secrets
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar, cast

from retrievers.base import BadInput, did_you_mean

DAMAGED = (OSError, EOFError, zlib.error)  # what reading a file or a gzip stream raises
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a pair, or a whole one: only encoding tells
_WORDS: dict[type, str] = {str: "text", list: "a list", dict: "an object"}

T = TypeVar("T")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked where it is gzipped."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder where a file is expected. Name a file in it.")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise BadInput(f"{path}: there is no folder {path.parent}. Check the path.") from None
        near = sorted(sibling.name for sibling in path.parent.iterdir())
        hint = did_you_mean(path.name, near) or f" {path.parent} holds: {some(near) or 'nothing'}."
        raise BadInput(f"{path}: there is no such file.{hint}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be opened: {error}.") from None
    with file:
        if file.peek(2)[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield file


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end) of every line that is not blank, read one at a time."""
    number = 0
    try:
        with opened(path) as file:
            for number, raw in enumerate(file, start=1):
                line = _decode(raw.rstrip(b"\r\n"), path, number)
                if line.strip():
                    yield number, line
    except DAMAGED as error:
        raise BadInput(f"{path}:{number + 1}: cannot be read ({error}). Is the file whole?") from None


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line; refuses other JSON, duplicate keys, NaN and Infinity."""
    for number, line in numbered_lines(path):
        if line.lstrip().startswith("["):
            raise BadInput(
                f"{path}:{number}: a JSON array where lines are expected: one object a line; convert with jq -c .[]"
            )
        row = _parse(line, path, number)
        if not isinstance(row, dict):
            raise BadInput(f"{path}:{number}: {row!r:.60} is not a JSON object. Each line must hold one, in braces.")
        yield number, row


def json_file(path: Path) -> dict[str, Any]:
    """The one object that a JSON file holds, as strict as `json_lines`."""
    content = _whole(path)
    if not isinstance(content, dict):
        raise BadInput(f"{path}: the file must hold one JSON object, in braces, not {content!r:.60}.")
    return content


def json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every line of JSON lines, or of every element of a JSON array, `FILE: item 1` on."""
    _, first = next(numbered_lines(path), (0, ""))
    if not first.lstrip().startswith("["):
        yield from ((f"{path}:{number}", row) for number, row in json_lines(path))
        return
    for number, item in enumerate(_whole(path), start=1):
        where = f"{path}: item {number}"
        if not isinstance(item, dict):
            raise BadInput(f"{where}: {item!r:.60} is not a JSON object. Each item must be one, in braces.")
        yield where, item


def field(row: Mapping[str, Any], key: str, kind: type[T], where: str) -> T:
    """row[key], which must be there and be a `kind` (str, list or dict)."""
    value = required(row, key, where)
    if not isinstance(value, kind):
        raise BadInput(f"{where}: {key} is {value!r:.60}, but must be {_WORDS[kind]}.")
    return value


def required(row: Mapping[str, Any], key: str, where: str) -> Any:
    """row[key]; where it is missing, the message names the fields that there are, and a near miss."""
    if key not in row:
        near = [f" {name!r} stands here.{did_you_mean(name, [key])}" for name in row if did_you_mean(name, [key])]
        raise BadInput(f"{where}: {key} is missing (fields here: {', '.join(row) or 'none'}).{''.join(near[:1])}")
    return row[key]


def optional_text(row: Mapping[str, Any], key: str, where: str) -> str:
    """row[key], the empty string where it is missing or null."""
    return "" if row.get(key) is None else field(row, key, str, where)


def identifier(row: Mapping[str, Any], key: str, where: str) -> tuple[str, int | None]:
    """The id in row[key] as text, and as the number that it was in the file, if it was one."""
    return as_id(required(row, key, where), key, where)


def as_id(value: Any, key: str, where: str) -> tuple[str, int | None]:
    """As `identifier`, of a value: text that is not blank, or a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), value
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{where}: {key} is {value!r:.60}: an id is text that is not empty, or a whole number.")
    return value, None


def finite(text: str, what: str, where: str) -> float:
    """The finite number that `text` says."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:  # Python alone reads 1_0 as 10
        raise BadInput(f"{where}: {what} {text!r:.60} is not a finite number.")
    return value


def once(seen: dict[Any, Any], key: Any, what: str, path: Path, position: int | str) -> None:
    """Note the key's position, or refuse it if it has one already."""
    if key in seen:
        raise BadInput(f"{path}:{position}: {what} {key!r:.80} stands already at {path}:{seen[key]}. Remove one.")
    seen[key] = position


def unique_rows(
    path: Path, rows: Iterable[tuple[int | str, dict[str, Any]]], key: str
) -> Iterator[tuple[str, str, int | None, dict[str, Any]]]:
    """(file:line, id, its number if it was one, row) of (position, row) pairs: at least one, row[key] unique."""
    seen: dict[str, int | str] = {}
    for position, row in rows:
        where = f"{path}:{position}"
        row_id, native = identifier(row, key, where)
        once(seen, row_id, key, path, position)
        yield where, row_id, native, row
    if not seen:
        raise no_rows(path)


def check_pairs(predictions: Path, ours: Collection[str], references: Path, theirs: Collection[str]) -> None:
    """Predictions and references must have the same ids; what is missing and what is too much is listed."""
    missing, extra = [one for one in theirs if one not in ours], [one for one in ours if one not in theirs]
    problems = [f"no prediction for {len(missing)} of {len(theirs)} ids: {some(missing)}"] if missing else []
    problems += [f"{len(extra)} of its {len(ours)} ids not in {references}: {some(extra)}"] if extra else []
    if problems:
        raise BadInput(f"{predictions}: {'; '.join(problems)}. Give one prediction for each id of {references}.")


def no_rows(path: Path) -> BadInput:
    """The error for a file that holds nothing."""
    return BadInput(f"{path}: the file holds no rows. Is it the right one?")


def some(ids: Collection[str], n: int = 5) -> str:
    """The first n of `ids` in words."""
    return ", ".join(list(ids)[:n]) + (f" and {len(ids) - n} more" if len(ids) > n else "")


def _whole(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        with opened(path) as file:
            text = _decode(file.read(), path, 1)
    except DAMAGED as error:
        raise BadInput(f"{path}: cannot be read ({error}). Is the file whole?") from None
    return _parse(text, path, None)


def _decode(raw: bytes, path: Path, number: int) -> str:
    """UTF-8 text that begins at line `number`; the first line may begin with a BOM."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        at = number + raw.count(b"\n", 0, error.start)
        raise BadInput(f"{path}:{at}: byte 0x{raw[error.start]:02x} is not UTF-8. Save the file as UTF-8.") from None
    return text.removeprefix("\ufeff") if number == 1 else text


def _parse(text: str, path: Path, number: int | None) -> Any:
    """JSON without NaN, Infinity, duplicate keys and halves of characters; number: of the line, None for a file."""
    where = str(path) if number is None else f"{path}:{number}"
    try:
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        place = f"{path}:{number or error.lineno}"
        remedy = "" if number is None else " Each line must hold one whole JSON object."
        raise BadInput(f"{place}: broken JSON ({error.msg}, column {error.colno}).{remedy}") from None
    except UnicodeEncodeError:
        raise BadInput(f"{where}: half of a surrogate pair (\\ud800 to \\udfff) is no character. Remove it.") from None
    except RecursionError:
        raise BadInput(f"{where}: the JSON is nested too deeply.") from None
    except ValueError as error:
        raise BadInput(f"{where}: {error}") from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key!r:.60} stands twice in one object. Remove one.")
    return row


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number. Write null or a finite number.")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_not_finite)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """One JSON object a line; the same rows give the same text."""
    return "".join(_encode(row) + "\n" for row in rows)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all: to a temporary name in the same folder, then renamed."""
    unfinished = path.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        with unfinished.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
