"""Cut a text into chunks. A chunk is a run of whole sentences, limited in size, that overlaps the previous chunk.

Sentences are merged greedily, as in LangChain's `CharacterTextSplitter` with `keep_separator="end"`. There are two
differences. A sentence that exceeds the maximum size is cut, because an encoder would read only its beginning. White
space around a chunk is removed.

A document's note is a sentence about its file, made from a template, such as "이 문서는 'Tesla'에 대한 정보를 담고
있습니다." It names the subject, which most chunks do not. The note becomes the title, so it is indexed, but it is not
part of the span.

Boundaries are ascending positions from 0 to the length of a text; a sentence includes the white space after it.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import importlib.metadata
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path, PurePath
from re import _constants as opcodes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Literal

import numpy as np

from harness.config.commands import ChunkKeys
from harness.config.schema import check_value, keys
from harness.data.files import numbered_lines
from harness.errors import BadInput, did_you_mean
from retrievers.hosts import name_host
from retrievers.lexical.tokenize import UNBROKEN, kiwi_model

# A sentence ends at a blank line, or at `.`, `?` or `!` (and any closing quotation marks or brackets) before white
# space. A single line break does not end a sentence: texts of PDF files break lines anywhere.
SENTENCE_END = r"""[.!?]["'”’)\]]*\s+|\n\s*\n"""
PARAGRAPH = re.compile(r"\n\s*\n")
BLOCKS = 256  # number of blocks between two reports of progress

Share = Callable[[float], None]  # called with the share of a text that is done, in [0, 1]


def compiled(separator: str) -> re.Pattern[str]:
    """Compile a separator. Raise BadInput if it is invalid, matches the empty string or can take for ever."""
    try:
        tree = parser.parse(separator)
        pattern = re.compile(separator)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(f"chunk.separator={separator!r:.100} is not a regular expression: {error}.") from None
    if tree.getwidth()[0] == 0:
        raise BadInput(
            f"chunk.separator={separator!r:.100} can match the empty string, which is between any two characters. "
            r"Make it match at least one character, such as [.!?]\s+."
        )
    if _nested(tree):
        raise BadInput(
            f"chunk.separator={separator!r:.100} repeats a repetition, such as (\\s+)+, which can take for ever. "
            r"Write it with one repetition: \s+."
        )
    return pattern


def by_pattern(text: str, pattern: re.Pattern[str]) -> np.ndarray:
    """Return int64 boundaries at the end of each match. A separator belongs to the sentence before it."""
    ends = np.array([match.end() for match in pattern.finditer(text)], np.int64)
    return _boundaries(ends, len(text))


def by_kiwi(text: str, share: Share) -> np.ndarray:
    """Return int64 boundaries of kiwi's sentences, at about 0.1 MB of text per second and thread.

    kiwi gets blocks of at most `UNBROKEN` characters, because it takes quadratic time for a text without white space.
    """
    borders = cut_long(text, by_pattern(text, PARAGRAPH), UNBROKEN)
    blocks = list(pairwise(borders.tolist()))
    starts: list[int] = []
    analysed = kiwi_model(None).split_into_sents((text[a:b] for a, b in blocks), return_sub_sents=False)
    for done, ((start, end), sentences) in enumerate(zip(blocks, analysed, strict=True), start=1):
        starts += [start, *(start + one.start for one in sentences[1:])]
        if done % BLOCKS == 0:
            share(end / len(text))
    return _boundaries(np.array(starts, np.int64), len(text))


def cut_long(text: str, borders: np.ndarray, size: int) -> np.ndarray:
    """Add boundaries until at most `size` characters lie between neighbouring boundaries."""
    added: list[int] = []
    for place in np.flatnonzero(np.diff(borders) > size).tolist():
        start, end = int(borders[place]), int(borders[place + 1])
        added += [start + at for at in cuts(text[start:end], range(end - start), size)]
    return np.sort(np.concatenate([borders, np.array(added, np.int64)])) if added else borders


def cuts(text: str, starts: Sequence[int], size: int) -> Iterator[int]:
    """Yield positions that cut a text into parts of at most `size` units.

    Cut after the last line break that fits, or else after the last white space, or else within a word. Never separate
    units that begin at the same character. starts: the start of each unit, ascending.
    """
    first = 0
    while len(starts) - first > size:
        floor, limit = starts[first], starts[first + size]
        if limit == floor:
            after = bisect.bisect_right(starts, floor)
            if after == len(starts):
                return
            at = starts[after]
        elif (line := text.rfind("\n", floor, limit)) >= 0:
            at = line + 1
        else:
            at = _word_start(text, floor, limit)
        yield at
        first = bisect.bisect_left(starts, at)


def _word_start(text: str, floor: int, limit: int) -> int:
    """Return the start of the word around `limit`; `limit` if it is between words, or if the word begins at `floor`."""
    if text[limit].isspace() or text[limit - 1].isspace():
        return limit
    window = text[floor:limit]
    word = window.rsplit(None, 1)[-1]
    return limit - len(word) if len(word) < len(window) else limit


def _boundaries(inner: np.ndarray, length: int) -> np.ndarray:
    inner = inner[(inner > 0) & (inner < length)]
    return np.concatenate([[0], inner, [length]]).astype(np.int64) if length else np.zeros(1, np.int64)


def _nested(tree: Any, repeated: bool = False) -> bool:
    for code, argument in tree:
        again = repeated
        if code in (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT) and argument[1] == opcodes.MAXREPEAT:
            if repeated:
                return True
            again = True
        if any(_nested(inner, again) for inner in _patterns(argument)):
            return True
    return False


def _patterns(argument: Any) -> Iterator[Any]:
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        yield from chain.from_iterable(map(_patterns, argument))


PLACEHOLDERS = ("name", "stem", "path")
_SHOWN = "{name}, {stem}, {path}"
LONGEST = 2_000  # maximum length of a template in characters, since its note is indexed with every chunk


@dataclass(frozen=True)
class Note:
    """A template with placeholders. `{{` and `}}` stand for braces.

    {name}: the file's name up to its first underscore, else up to its suffix: `Tesla` for `Tesla_KR.txt`.
    {stem}: the file's name without its suffix. {path}: the path in `files.jsonl`.
    """

    template: str

    @classmethod
    def read(cls, file: Path) -> Note:
        """Read the template from a UTF-8 file. Raise BadInput, which names the file, if the template cannot be used."""
        text = "\n".join(line for _, line in numbered_lines(file)).strip()
        if not text:
            raise BadInput(f"{file}: the note is empty. Write a sentence with {_SHOWN}, or set chunk.note=null.")
        if len(text) > LONGEST:
            raise BadInput(f"{file}: the note has {len(text):,} characters: the maximum is {LONGEST:,}.")
        if bad := next((one for one in text if unicodedata.category(one) == "Cc" and one not in "\n\t"), None):
            raise BadInput(f"{file}: the note contains the control character {bad!r}. Remove it.")
        try:
            fields = [field for _, field, *_ in _parsed(text) if field is not None]
        except ValueError as error:
            raise BadInput(f"{file}: {error}. Write {{{{ and }}}} for braces.") from None
        for field in fields:
            if field not in PLACEHOLDERS:
                hint = did_you_mean(field, PLACEHOLDERS) or f" Known: {_SHOWN}."
                raise BadInput(f"{file}: there is no placeholder {{{field:.60}}}.{hint}")
        return cls(unicodedata.normalize("NFC", text))

    def of(self, path: str) -> str:
        """Return the note of the file at `path`, in NFC, because macOS decomposes names."""
        composed = unicodedata.normalize("NFC", path)
        stem = PurePath(composed).stem
        values = {"name": stem.partition("_")[0] or stem, "stem": stem, "path": composed}
        return "".join(
            literal + (values[field] if field is not None else "") for literal, field, *_ in _parsed(self.template)
        ).strip()


def _parsed(template: str) -> list[tuple[str, str | None]]:
    """Return (literal text, next placeholder or None) pairs. Raise ValueError for unmatched braces."""
    parts = []
    for literal, field, form, conversion in string.Formatter().parse(template):
        suffix = f"!{conversion}" * bool(conversion) + f":{form}" * bool(form)
        parts.append((literal, None if field is None else f"{field}{suffix}"))
    return parts


TOKENIZED_AT_ONCE = 1000  # number of texts that are tokenized in one call
KIWI = ("kiwipiepy", "kiwipiepy_model")
FILE = "tokenizer.json"


def token_starts(texts: Sequence[str], tokenizer: str) -> Iterator[list[int]]:
    """Yield, for each text, the starts of its tokens, without special tokens."""
    model, _ = load_tokenizer(tokenizer)
    for first in range(0, len(texts), TOKENIZED_AT_ONCE):
        try:
            batch = model.encode_batch(texts[first : first + TOKENIZED_AT_ONCE], add_special_tokens=False)
        except Exception as error:  # the library raises no narrower class
            raise BadInput(f"chunk.tokenizer={tokenizer} cannot count tokens: {error!s:.200}.") from None
        for encoded in batch:
            yield [start for start, _ in encoded.offsets]


@functools.lru_cache(maxsize=1)
def load_tokenizer(tokenizer: str) -> tuple[Any, str]:
    """Return the tokenizer that `Chunking` names, and the sha256 of its file. Raise BadInput if it cannot be read."""
    if find_spec("tokenizers") is None:
        raise BadInput(
            "chunk.unit=tokens needs the package tokenizers: pip install 'retrieval-harness[dense]'. Or use "
            "chunk.unit=characters or morphemes."
        )
    from tokenizers import Tokenizer

    file = _located(tokenizer)
    content = file.read_bytes()
    try:
        model = Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises no narrower class
        raise BadInput(f"{file} is not a tokenizer: {str(error) or type(error).__name__:.200}.") from None
    model.no_truncation()
    model.no_padding()
    return model, hashlib.sha256(content).hexdigest()


def _located(tokenizer: str) -> Path:
    path = Path(tokenizer)
    if path.is_file():
        return path
    if path.is_dir():
        if not (path / FILE).is_file():
            raise BadInput(
                f"chunk.tokenizer={tokenizer}: the folder holds no {FILE}. Name a folder that has it, or the file."
            )
        return path / FILE
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    connection_errors: tuple[Any, ...] = HfHubHTTPError.__bases__
    if not constants.HF_HUB_OFFLINE:
        name_host(constants.ENDPOINT, "chunk.tokenizer")
    try:
        return Path(hf_hub_download(tokenizer, FILE))
    except (*connection_errors, LocalEntryNotFoundError, HFValidationError) as error:
        raise BadInput(
            f"chunk.tokenizer={tokenizer} is neither a file nor a folder, and cannot be fetched from the hub "
            f"({type(error).__name__}). Either (1) run `hf download {tokenizer} {FILE}` on a machine that reaches "
            "the hub, copy the file here and give its path, or (2) set chunk.unit=characters or morphemes."
        ) from None


BATCH = 256  # number of sentences between two reports of progress


@dataclass(frozen=True)
class Chunking:
    """Settings for cutting texts into chunks. Raise BadInput, which names the key, for settings that cannot work.

    splitter: finds sentences by the regular expression `separator`, or by kiwi's analysis of Korean.
    size: maximum number of units in a chunk; a longer sentence is cut.
    overlap: maximum number of units that a chunk shares with the previous chunk, in whole sentences.
    unit: unit of `size` and `overlap`; white space between sentences counts too.
    tokenizer: counts the tokens; given as a tokenizer.json, its folder, or a name on the Hugging Face hub.
    note: file with the template of the documents' notes (`Note`); None for no notes.
    """

    splitter: Literal["regex", "kiwi"] = "regex"
    separator: str = SENTENCE_END
    size: int = 400
    overlap: int = 80
    unit: Literal["characters", "morphemes", "tokens"] = "characters"
    tokenizer: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        for name, key in keys(ChunkKeys).items():
            check_value(getattr(self, name), key, f"chunk.{name}")
        if self.overlap >= self.size:
            raise BadInput(
                f"chunk.overlap={self.overlap} is not below chunk.size={self.size}: every chunk would repeat the "
                "previous chunk. Lower chunk.overlap; a fifth of the size is usual."
            )
        compiled(self.separator)
        if self.unit == "tokens" and self.tokenizer is None:
            raise BadInput("chunk.unit=tokens needs chunk.tokenizer: a tokenizer.json, its folder, or a hub name.")
        if self.unit != "tokens" and self.tokenizer is not None:
            raise BadInput(f"chunk.tokenizer has no effect with chunk.unit={self.unit}. Set chunk.unit=tokens.")

    @classmethod
    def of(cls, settings: Mapping[str, Any], where: str = "chunk") -> Chunking:
        """Return the settings in a config. Raise BadInput for unknown keys. where: the config key of the settings."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in settings:
            if key not in known:
                raise BadInput(f"{where}.{key} is unknown.{did_you_mean(str(key), known)} Known: {', '.join(known)}.")
        try:
            return cls(**settings)
        except BadInput as error:
            raise BadInput(str(error).replace("chunk.", f"{where}.")) from None

    def notes(self) -> Note | None:
        return Note.read(Path(self.note)) if self.note else None

    def identity(self) -> dict[str, Any]:
        """Return all that determines spans and notes, as JSON: settings, note template, tokenizer hash, versions."""
        used, note = dataclasses.asdict(self), self.notes()
        used["note"] = note.template if note else None
        if self.splitter == "kiwi":
            del used["separator"]
        if self.tokenizer is not None:
            used["tokenizer"] = load_tokenizer(self.tokenizer)[1]
        if self.splitter == "kiwi" or self.unit == "morphemes":
            used["packages"] = {name: importlib.metadata.version(name) for name in KIWI}
        return used

    @property
    def is_slow(self) -> bool:
        return self.splitter == "kiwi" or self.unit != "characters"

    def spans(self, text: str, share: Share = lambda _: None) -> list[tuple[int, int]]:
        """Return (start, end) of each chunk in code points, without white space around it.

        Ends strictly ascend; starts may be equal. Every character except white space is in a chunk. share: see `Share`.
        """
        if self.splitter == "kiwi" and self.unit == "morphemes":  # kiwi reads the text twice: for sentences and units
            borders = by_kiwi(text, lambda done: share(done / 2))
            return self._spans(text, borders, lambda done: share((1 + done) / 2))
        borders = by_kiwi(text, share) if self.splitter == "kiwi" else by_pattern(text, compiled(self.separator))
        return self._spans(text, borders, share)

    def _spans(self, text: str, borders: np.ndarray, share: Share) -> list[tuple[int, int]]:
        if self.unit == "characters":
            borders = cut_long(text, borders, self.size)
            lengths = np.diff(borders)
        else:
            borders, lengths = self._counted(text, cut_long(text, borders, UNBROKEN), share)
        return list(_trimmed(text, borders.tolist(), _merged(lengths, self.size, self.overlap)))

    def _counted(self, text: str, borders: np.ndarray, share: Share) -> tuple[np.ndarray, np.ndarray]:
        pieces = [text[start:end] for start, end in pairwise(borders.tolist())]
        analysed: Iterator[list[int]]
        if self.unit == "morphemes":
            analysed = ([one.start for one in tokens] for tokens in kiwi_model(None).tokenize(pieces))
        else:
            analysed = token_starts(pieces, str(self.tokenizer))
        found, lengths = [0], [np.zeros(0, np.int64)]
        for done, (piece, starts) in enumerate(zip(pieces, analysed, strict=True), start=1):
            begin, ends = found[-1], [*cuts(piece, starts, self.size), len(piece)]
            lengths.append(np.diff(np.searchsorted(starts, ends), prepend=0))
            found += [begin + end for end in ends]
            if done % BATCH == 0:
                share(found[-1] / len(text))
        return np.array(found, np.int64), np.concatenate(lengths)


def _merged(lengths: np.ndarray, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yield (first sentence, sentence after the last) of each chunk. lengths: int64 [N], the units of each sentence.

    A chunk begins as early as two limits allow: it may share at most `overlap` units with the previous chunk, and it
    must have room for the sentence that follows the previous chunk. It takes sentences up to a total of `size` units.
    """
    before = [0, *np.cumsum(lengths).tolist()]
    first = last = 0
    while last < len(lengths):
        last = max(last + 1, bisect.bisect_right(before, before[first] + size) - 1)
        yield first, last
        if last < len(lengths):
            room = min(before[last + 1] - size, before[last])
            first = bisect.bisect_left(before, max(before[last] - overlap, room), first, last)


def _trimmed(text: str, borders: Sequence[int], chunks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    reached = 0
    for first, last in chunks:
        start, end = borders[first], borders[last]
        while end > start and text[end - 1].isspace():
            end -= 1
        while start < end and text[start].isspace():
            start += 1
        if end > max(start, reached):
            reached = end
            yield start, end
