"""Drafted queries, the real queries that they imitate, the prompts, and the folder of a drafted test set.

- queries.jsonl, rejected.jsonl: one draft a line.
- testset.json: the settings, and the sha256 of the other files; written last.
- unfinished.json: the sha256 of files being written. If the process is killed, it proves that the harness wrote them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.config.canonical import flatten
from harness.data.contest import Contest
from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.data.files import json_file, json_lines, json_text, no_rows, numbered_lines, sha256_of, text_file
from harness.data.spans import Evidence
from harness.data.testset import EvidencedQuery, read_queries, span_qrels
from harness.errors import BadInput
from harness.llm.structured import MOST, PromptText, read_prompt
from harness.storage.atomic import write_text
from harness.storage.typed import encoded
from retrievers.base import Query, Turn


def hashed(*parts: object) -> str:
    """Return the sha256 of the parts, in hexadecimal digits, for repeatable random choices."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


def picked(values: Iterable[str], count: int, *key: object) -> list[str]:
    """Return at most `count` of the values, always the same for the same key, whatever the order of the values."""
    return sorted(values, key=lambda value: (hashed(*key, value), value))[:count]


@dataclass(frozen=True)
class Draft:
    """A drafted query. kind: one of KINDS. turns: the last turn is the user's question. answer: "" for the kinds `none`
    and `unanswerable`. evidence: verbatim passages. doc_id: the document that the model was shown; "" for the kind
    `none`. flags: remarks for a reviewer."""

    kind: str
    turns: tuple[Turn, ...]
    answer: str = ""
    evidence: tuple[Evidence, ...] = ()
    doc_id: str = ""
    flags: tuple[str, ...] = ()

    @property
    def query_id(self) -> str:
        """Return 12 hexadecimal digits of the sha256 of kind and turns. Equal drafts have equal ids."""
        content = [self.kind, [[turn.role, turn.content] for turn in self.turns]]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()[:12]

    @property
    def question(self) -> str:
        return self.turns[-1].content


@dataclass(frozen=True)
class Rejection:
    """A draft that does not enter the test set. reason: one of the reasons in docs/testsets.md."""

    draft: Draft
    reason: str
    detail: str


SHOWN = 5  # examples in a prompt


@dataclass(frozen=True)
class Examples:
    """Real queries to imitate. rows: the queries with their evidence, if they come from a test set. relevant: query_id
    -> relevant documents, if they come from a file with labels."""

    queries: tuple[Query, ...] = ()
    rows: tuple[EvidencedQuery, ...] = ()
    relevant: Mapping[str, Collection[str]] = field(default_factory=dict)

    def labels(self, chunks: Sequence[Chunk], folder: DocumentsFolder) -> Mapping[str, Collection[str]]:
        """Return query_id -> relevant documents, for labelled queries (no documents: no retrieval is needed)."""
        return span_qrels(self.rows, chunks, folder).grades if self.rows else self.relevant


def read_examples(path: Path, key: str = "examples") -> Examples:
    """Read queries from the folder of a test set or from a file. A file has one query a line, as plain text or as the
    contest's JSON {eval_id, msg}. If one JSON line has the contest's labels (`relevant`), all lines need them.
    key: the config key, for errors."""
    if path.is_dir():
        rows = read_queries(path, key)
        return Examples(tuple(row.query for row in rows), tuple(rows))
    try:
        lines = list(numbered_lines(path))
        if not lines:
            raise no_rows(path)
        if not lines[0][1].lstrip().startswith(("{", "[")):
            return Examples(tuple(Query.of(str(number), line.strip()) for number, line in lines))
        qrels = Contest(qrels=str(path)).qrels() if any("relevant" in row for _, row in json_lines(path)) else None
        return Examples(tuple(Contest(queries=str(path)).queries()), relevant=qrels.grades if qrels else {})
    except BadInput as error:
        raise BadInput(f"{key}: {error}") from None


def example_lines(examples: Sequence[Query], kind: str, *key: object) -> str:
    """Return a few examples for a prompt, one a line, always the same for the same key. For the kind `conversation`,
    the examples are whole conversations if there are any. In all other cases, they are the users' last messages."""
    turned = [[(turn.role, " ".join(turn.content.split())) for turn in query.turns] for query in examples]
    talks = [turns for turns in turned if sum(role == "user" for role, _ in turns) > 1]
    if kind == "conversation" and talks:
        texts = {" / ".join(f"{role}: {text}" for role, text in turns) for turns in talks}
    else:
        texts = {" ".join(query.user_turns[-1].split()) for query in examples}
    return "\n".join(f"- {text}" for text in picked(texts, SHOWN, *key))


VERSION = 1
QUERIES, REJECTED, MANIFEST, UNFINISHED = "queries.jsonl", "rejected.jsonl", "testset.json", "unfinished.json"
FILES = (QUERIES, REJECTED)
TEMPORARY = ".unfinished"  # ending of the temporary files that killed processes leave


class TestsetFolder:
    """A folder to draft into. settings: everything that decides the drafts, except how many documents the model saw."""

    __test__ = False  # Without this, pytest would collect the class, since its name begins with Test.

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self._settings = path, settings

    def check(self, shown: int) -> None:
        """Raise BadInput if the folder cannot be used. It must be new or empty, or have unedited drafts that were made
        with these settings from at most `shown` documents."""
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"testset={self.path}: this is a file. Name a folder.")
        there = [self.path / name for name in FILES if (self.path / name).exists()]
        manifest = self._read(MANIFEST)
        if manifest is None and self._read(UNFINISHED) is None:
            if self.path.is_dir() and any(one.suffix != TEMPORARY for one in self.path.iterdir()):
                raise BadInput(
                    f"testset={self.path}: the folder holds other files and no {MANIFEST}. Name a new folder."
                )
            return
        if manifest is not None:
            self._check_settings(manifest, shown)
        for path in there:
            if sha256_of(path) not in self._own(path.name):
                raise BadInput(
                    f"{path} has been edited since it was drafted, so it is not overwritten. Draft into another "
                    f"folder, such as testset={self.path}2. Cached replies cost nothing."
                )

    def write(self, drafts: Iterable[Draft], rejections: Iterable[Rejection], manifest: Mapping[str, Any]) -> None:
        """Write the test set. Call `check` first. manifest: further content of `testset.json`."""
        queries = (
            {"eval_id": one.query_id, **_row(one), "needs": one.kind != "none", "flags": list(one.flags)}
            for one in drafts
        )
        rejected = ({"reason": one.reason, "detail": one.detail, **_row(one.draft)} for one in rejections)
        texts = {QUERIES: json_text(queries), REJECTED: json_text(rejected)}
        digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / UNFINISHED, _json(digests))
        for name, text in texts.items():
            write_text(self.path / name, text)
        write_text(
            self.path / MANIFEST,
            _json({"version": VERSION, **manifest, "settings": self._settings, "files": digests}),
        )
        (self.path / UNFINISHED).unlink(missing_ok=True)  # Another process may have removed it.

    def _own(self, name: str) -> set[str]:
        """Return the sha256 of what the harness last wrote to the file `name`, and of what it last began to write."""
        files = [(self._read(MANIFEST) or {}).get("files"), self._read(UNFINISHED)]
        return {str(one[name]) for one in files if isinstance(one, Mapping) and name in one}

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        return json_file(path) if path.exists() else None

    def _check_settings(self, manifest: Mapping[str, Any], shown: int) -> None:
        before, other = manifest.get("settings"), f"into another folder, such as testset={self.path}2"
        if not isinstance(before, Mapping):
            raise BadInput(
                f"testset={self.path}: the queries there were not drafted by a language model ({self.path / MANIFEST} "
                "has no settings). Name a new folder."
            )
        old, new = flatten(before), flatten(self._settings)
        if old.get("documents") != new.get("documents"):
            raise BadInput(
                f"testset={self.path} was drafted from other documents. Draft from these {other}. Replies about "
                "unchanged documents are cached."
            )
        for key in {**new, **old}:
            if old.get(key) != new.get(key):
                raise BadInput(
                    f"testset={self.path} was drafted with {key}={_short(old.get(key))}, not {_short(new.get(key))}. "
                    f"Draft {other}, or give the former value."
                )
        most = manifest.get("shown")
        if not isinstance(most, int) or shown < most:
            raise BadInput(
                f"testset={self.path} was drafted from {most} documents, but this command uses only {shown}. Give "
                f"a larger limit=N, or draft {other}."
            )


def _row(draft: Draft) -> dict[str, Any]:
    row = {"kind": draft.kind, "msg": draft.turns, "answer": draft.answer, "docid": draft.doc_id}
    found: dict[str, Any] = encoded({**row, "evidence": draft.evidence})
    return found


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


SHIPPED = Path(__file__).parents[1] / "prompts"
# (names that a prompt must contain as `{name}`, names that it may contain)
ABOUT_A_DOCUMENT = (("questions", "text"), ("note", "examples"))
ABOUT_NONE = (("questions", "situation"), ("examples",))


def read_prompts(kinds: Sequence[str], language: str, files: Mapping[str, str | None]) -> dict[str, PromptText]:
    """Return the prompt for each kind of query. files: kind -> the user's file; None: the shipped prompt."""
    found = {}
    for kind in kinds:
        given = files[kind]
        path = Path(given) if given else SHIPPED / language / f"{kind}.txt"
        needed, optional = ABOUT_NONE if kind == "none" else ABOUT_A_DOCUMENT
        found[kind] = read_prompt(path, needed, optional, f"prompts.{kind}" if given else "")
    return found


def check_examples(prompts: Mapping[str, PromptText]) -> None:
    """Raise BadInput if a prompt has no place for examples."""
    for kind, prompt in prompts.items():
        if "examples" not in prompt.places:
            raise BadInput(
                f"prompts.{kind} has no {{examples}}, so examples=FILE would not change it. Put {{examples}} into the "
                "prompt, or leave out examples=FILE."
            )


def fill_prompt(prompt: PromptText, values: Mapping[str, str]) -> str:
    """Return the prompt with a value in place of each `{name}`. Leave out paragraphs that get only empty values."""

    def empty(paragraph: str) -> bool:
        found = [value for name, value in values.items() if f"{{{name}}}" in paragraph]
        return bool(found) and not any(found)

    kept = [paragraph for paragraph in re.split(r"\n{2,}", prompt.text) if not empty(paragraph)]
    return replace(prompt, text="\n\n".join(kept)).filled(**values)


def language_of(text: str) -> str:
    """Return "ko" if over a tenth of the letters are Hangul, else "en". The limit is low, since Korean texts may have
    many English names."""
    letters = [letter for letter in text if letter.isalpha()]
    hangul = sum("\uac00" <= letter <= "\ud7a3" for letter in letters)
    return "ko" if hangul > len(letters) / 10 else "en"


LOOKED_AT = 100  # number of documents that decide the language of the prompts


def prompt_language(given: str, texts: Sequence[str]) -> str:
    """Return the language of the shipped prompts: `given` or, if that is "auto", the language of the first texts."""
    return language_of("\n".join(texts[:LOOKED_AT])) if given == "auto" else given


def situations(language: str, seed: int) -> list[str]:
    """Return situations for messages that need no retrieval. Each has a kind of message, a speaker and an occasion from
    the three lists in `situations.txt`; blank lines separate the lists. In the result, the kinds alternate."""
    text = text_file(SHIPPED / language / "situations.txt", MOST).strip()
    messages, speakers, occasions = (block.split("\n") for block in text.split("\n\n"))
    pairs = [f"{speaker}, {occasion}" for speaker in speakers for occasion in occasions]
    shuffled = {message: picked(pairs, len(pairs), seed, message) for message in messages}
    return [f"{message} ({shuffled[message][number]})" for number in range(len(pairs)) for message in messages]
