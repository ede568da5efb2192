"""Read and write files of lines and JSON. Errors name the file and the line, counted from 1.

Files are UTF-8, with or without a BOM, with LF or CRLF, plain or gzipped (detected by content, not by name).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar, cast

from harness.errors import BadInput, did_you_mean

DAMAGED = (OSError, EOFError, zlib.error)  # raised by reading a file or a gzip stream
BLOCK = 1 << 20  # bytes that are read at once
# A line or a JSON file takes several times its size in memory, so damaged or hostile files need limits.
LONGEST_LINE, LONGEST_JSON = 256 << 20, 1 << 30  # bytes
# Limits of the unpacked size: in bytes, and as a multiple of the packed size. The greater limit applies.
UNPACKED_FREELY, MOST_PACKED = 1 << 30, 200
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # escaped surrogate; an unpaired one cannot be encoded
_WORDS: dict[type, str] = {str: "text", list: "a list", dict: "an object", bool: "true or false"}

T = TypeVar("T")


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, and unpack it if it is gzipped. Raise BadInput if it cannot be opened."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder, but a file is expected. Name a file in it.")
    if path.exists() and not path.is_file():  # reading it could wait for ever
        raise BadInput(f"{path} is a device or a pipe, but a file is expected. Save its output to a file.")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise BadInput(f"{path}: there is no folder {path.parent}. Check the path.") from None
        near = sorted(sibling.name for sibling in path.parent.iterdir())
        hint = did_you_mean(path.name, near) or f" {listing(path.parent, near)}"
        raise BadInput(f"{path}: there is no such file.{hint}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be opened: {error}.") from None
    with file:
        if file.peek(2)[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as packed:
                yield cast(IO[bytes], io.BufferedReader(_Unpacked(packed, path), 1 << 18))
        else:
            yield file


class _Unpacked(io.RawIOBase):
    def __init__(self, packed: gzip.GzipFile, path: Path) -> None:
        self._packed, self._path = packed, path
        self._most = max(UNPACKED_FREELY, MOST_PACKED * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._packed.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        block = self._packed.read1(len(buffer))
        buffer[: len(block)] = block
        if self._packed.tell() > self._most:
            raise BadInput(
                f"{self._path} unpacks to more than {self._most:,} bytes and more than {MOST_PACKED} times its size, "
                "which is unusual for texts. If it is the right file, unpack it with gunzip."
            )
        return len(block)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's unpacked content. Raise BadInput if it cannot be read."""
    found = hashlib.sha256()
    try:
        with open_unpacked(path) as file:
            while block := file.read(BLOCK):
                found.update(block)
    except DAMAGED as error:
        raise _unreadable(path, error) from None
    return found.hexdigest()


def _unreadable(where: Path | str, error: Exception) -> BadInput:
    return BadInput(f"{where}: cannot be read ({error}). Is the file complete?")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line without its end) of every line that is not blank."""
    number = 0
    try:
        with open_unpacked(path) as file:
            for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
                if len(raw) > LONGEST_LINE:
                    raise BadInput(
                        f"{path}:{number}: the line has more than {LONGEST_LINE >> 20} MB. Are its line breaks missing?"
                    )
                line = decode(raw.rstrip(b"\r\n"), path, number)
                if line.strip():
                    yield number, line
    except DAMAGED as error:
        raise _unreadable(f"{path}:{number + 1}", error) from None


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) per line. Raise BadInput for non-objects, duplicate keys and infinite numbers."""
    for number, line in numbered_lines(path):
        yield number, _row(line, path, number)


def json_rows(raw: bytes, path: Path, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the same as `json_lines`, for the part `raw` of a file. first: the line number at which the part begins."""
    for number, raw_line in enumerate(raw.split(b"\n"), start=first):
        line = decode(raw_line.rstrip(b"\r"), path, number)
        if line.strip():
            yield number, _row(line, path, number)


def _row(line: str, path: Path, number: int) -> dict[str, Any]:
    if line.lstrip().startswith("["):
        raise BadInput(
            f"{path}:{number}: this is a JSON array, but each line must be an object. Convert it with jq -c .[]"
        )
    row = _parse(line, path, number)
    if not isinstance(row, dict):
        raise BadInput(f"{path}:{number}: {row!r:.60} is not a JSON object. Each line must be an object, in braces.")
    return row


def text_file(path: Path, most: int) -> str:
    """Return a file's text, with LF line endings. Raise BadInput if it has more than `most` bytes."""
    raw = bytearray()
    try:
        with open_unpacked(path) as file:
            while len(raw) <= most and (block := file.read(BLOCK)):  # file.read(most) would reserve `most` bytes
                raw += block
    except DAMAGED as error:
        raise _unreadable(path, error) from None
    if len(raw) > most:
        raise BadInput(f"{path}: the file has more than {most:,} bytes, which is too long. Is it the right one?")
    return decode(bytes(raw), path, 1).replace("\r\n", "\n")


def json_file(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, checked like the lines of `json_lines`."""
    content = _whole(path)
    if not isinstance(content, dict):
        raise BadInput(f"{path}: the file must be one JSON object, in braces, not {content!r:.60}.")
    return content


def json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (`FILE:line`, object) of every JSON line, or (`FILE: item n`, object) of every item of a JSON array."""
    _, first = next(numbered_lines(path), (0, ""))
    if not first.lstrip().startswith("["):
        yield from ((f"{path}:{number}", row) for number, row in json_lines(path))
        return
    for number, item in enumerate(_whole(path), start=1):
        where = f"{path}: item {number}"
        if not isinstance(item, dict):
            raise BadInput(f"{where}: {item!r:.60} is not a JSON object. Each item must be an object, in braces.")
        yield where, item


def field(row: Mapping[str, Any], key: str, kind: type[T], where: str) -> T:
    """Return row[key]. Raise BadInput unless its type is `kind` (str, list, dict or bool). where: the row's place."""
    value = required(row, key, where)
    if not isinstance(value, kind):
        raise BadInput(f"{where}: {key} is {value!r:.60}, but must be {_WORDS[kind]}.")
    return value


def finished_folder(
    path: Path, manifest: str, version: int, *, key: str, give: str, finish: str, name: str = "version"
) -> dict[str, Any]:
    """Return the manifest of a folder. Raise BadInput if the manifest is missing or has another version.

    key: the config key of the folder. give: remedy for a missing folder. finish: remedy for a missing manifest and for
    another version. name: the manifest's field that holds the version.
    """
    try:
        found = path.is_dir()
    except OSError as error:  # for example, the name is too long
        raise BadInput(f"{key}={path!s:.60}…: {error.strerror}. Name another folder.") from None
    if not found:
        what = "this is a file, not a folder" if path.exists() else "there is no such folder"
        raise BadInput(f"{key}={path}: {what}. {give}")
    file = path / manifest
    if not file.is_file():
        raise BadInput(f"{key}={path}: {manifest} is missing, so this folder is not finished. {finish}")
    content = json_file(file)
    if (known := required(content, name, str(file))) != version:
        raise BadInput(f"{file}: {name} is {known!r:.60}, but this harness reads {name} {version}. {finish}")
    return content


def required(row: Mapping[str, Any], key: str, where: str) -> Any:
    """Return row[key]. If it is missing, raise BadInput with the existing fields and a similar name."""
    if key not in row:
        near = [f" There is {name!r}.{did_you_mean(name, [key])}" for name in row if did_you_mean(name, [key])]
        raise BadInput(f"{where}: {key} is missing (fields here: {some(row, 20) or 'none'}).{''.join(near[:1])}")
    return row[key]


def optional_text(row: Mapping[str, Any], key: str, where: str) -> str:
    """Return row[key], which must be text; "" if it is missing or null."""
    return "" if row.get(key) is None else field(row, key, str, where)


def identifier(row: Mapping[str, Any], key: str, where: str) -> tuple[str, int | None]:
    """Return the id in row[key] as text, and as a number (None if it is not a number in the file)."""
    return as_id(required(row, key, where), key, where)


def as_id(value: Any, key: str, where: str) -> tuple[str, int | None]:
    """Return an id in the form of `identifier`. Raise BadInput unless it is a whole number or non-blank text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), value
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{where}: {key} is {value!r:.60}, but an id must be non-empty text or a whole number.")
    return value, None


def finite_number(text: str, what: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:  # Python reads 1_0 as 10, but JSON and C do not
        raise BadInput(f"{where}: {what:.60} {text!r:.60} is not a finite number.")
    return value


def once(seen: dict[Any, Any], key: Any, what: str, path: Path, position: int | str) -> None:
    """Add a key's position to `seen`. Raise BadInput if the key is already in `seen`."""
    if key in seen:
        raise repeated_key(key, what, path, position, seen[key])
    seen[key] = position


def repeated_key(key: Any, what: str, path: Path, position: int | str, before: int | str) -> BadInput:
    """Return the error for a key that occurs twice. before: the key's first position."""
    return BadInput(f"{path}:{position}: {what} {key!r:.80} is already at {path}:{before}. Remove one of them.")


def unique_rows(
    path: Path, key: str, rows: Iterable[tuple[int | str, dict[str, Any]]] | None = None
) -> Iterator[tuple[str, str, int | None, dict[str, Any]]]:
    """Yield (file:position, id, the id as a number or None, row) of each row.

    Raise BadInput if there are no rows, or if an id repeats. rows: (position, row) pairs; None to read JSON lines.
    """
    seen: dict[str, int | str] = {}
    for position, row in json_lines(path) if rows is None else rows:
        where = f"{path}:{position}"
        row_id, native = identifier(row, key, where)
        once(seen, row_id, key, path, position)
        yield where, row_id, native, row
    if not seen:
        raise no_rows(path)


def check_pairs(predictions: Path, ours: Collection[str], references: Path, theirs: Collection[str]) -> None:
    """Raise BadInput, with the missing and superfluous ids, unless both files have the same ids."""
    missing, extra = [one for one in theirs if one not in ours], [one for one in ours if one not in theirs]
    problems = [f"no prediction for {len(missing)} of {len(theirs)} ids: {some(missing)}"] if missing else []
    problems += [f"{len(extra)} of its {len(ours)} ids not in {references}: {some(extra)}"] if extra else []
    if problems:
        raise BadInput(f"{predictions}: {'; '.join(problems)}. Give one prediction for each id of {references}.")


def no_rows(path: Path) -> BadInput:
    return BadInput(f"{path}: the file holds no rows. Is it the right one?")


def some(ids: Collection[str], n: int = 5, count: int | None = None) -> str:
    """Return the first n ids as "a, b and 3 more", each cut to 60 characters. count: number of ids; None: len(ids)."""
    count = len(ids) if count is None else count
    return ", ".join(f"{one:.60}" for one in list(ids)[:n]) + (f" and {count - n} more" if count > n else "")


def listing(folder: Path, names: Collection[str]) -> str:
    return f"{'This folder' if folder == Path() else folder} contains: {some(names) or 'nothing'}."


def _whole(path: Path) -> Any:
    return _parse(text_file(path, LONGEST_JSON), path, None)


def decode(raw: bytes, path: Path, number: int) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        at = number + raw.count(b"\n", 0, error.start)
        raise BadInput(f"{path}:{at}: byte 0x{raw[error.start]:02x} is not UTF-8. Save the file as UTF-8.") from None
    return text.removeprefix("\ufeff") if number == 1 else text


def _parse(text: str, path: Path, number: int | None) -> Any:
    where = str(path) if number is None else f"{path}:{number}"
    try:
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        place = f"{path}:{number or error.lineno}"
        remedy = "" if number is None else " Each line must be one complete JSON object."
        raise BadInput(f"{place}: broken JSON ({error.msg}, column {error.colno}).{remedy}") from None
    except UnicodeEncodeError:
        raise BadInput(f"{where}: an unpaired surrogate (\\ud800 to \\udfff) is not a character. Remove it.") from None
    except RecursionError:
        raise BadInput(f"{where}: the JSON is nested too deeply.") from None
    except ValueError as error:
        raise BadInput(f"{where}: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key!r:.60} occurs twice in one object. Remove one of them.")
    return row


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number. Write null or a finite number.")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.60} is too large for a number. Write null or a finite number.")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_not_finite, parse_float=_finite_float)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_line(row: Mapping[str, Any]) -> str:
    """Return a JSON object as one line that ends with LF."""
    return _encode(row) + "\n"


def json_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return JSON lines. Equal rows give equal text."""
    return "".join(map(json_line, rows))
