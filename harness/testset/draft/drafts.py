"""What a language model drafts: questions with answers and the evidence for them.

Real queries of users, whose style drafted ones follow.

The folder of a test set, written: queries, rejected drafts and a manifest, none of which replaces a person's work.

queries.jsonl, rejected.jsonl: one line per draft. testset.json: what made them and their sha256, written last.
unfinished.json: the sha256 of files that are being written, so that a killed process's are known as the harness's own.

The prompts that drafts are asked for with: shipped in Korean and English, or files of the user.

A paragraph of a prompt that is about an empty value, such as {examples} without examples, is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.config.canonical import flatten
from harness.data.contest import Contest
from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.data.files import json_file, json_lines, json_text, no_rows, numbered_lines, sha256_of, text_file
from harness.data.spans import Evidence
from harness.data.testset import KINDS, EvidencedQuery, read_queries, span_qrels
from harness.errors import BadInput
from harness.llm.structured import MOST, PromptText, read_prompt
from harness.storage.atomic import write_text
from harness.testset.judge.sampling import picked
from retrievers.base import Query, Turn

__all__ = ["KINDS", "Draft", "Rejection"]


@dataclass(frozen=True)
class Draft:
    """A drafted query.

    kind: of KINDS. turns: the conversation; its last turn is the user's question. answer: empty for `none` and
    `unanswerable`. evidence: passages that were quoted verbatim. doc_id: of the document that the model was shown;
    empty for `none`. flags: what a reviewer should look at, such as "hard for BM25"; they never reject.
    """

    kind: str
    turns: tuple[Turn, ...]
    answer: str = ""
    evidence: tuple[Evidence, ...] = ()
    doc_id: str = ""
    flags: tuple[str, ...] = ()

    @property
    def query_id(self) -> str:
        """12 hexadecimal digits of the sha256 of kind and turns: the same draft always has the same id."""
        content = [self.kind, [[turn.role, turn.content] for turn in self.turns]]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()[:12]

    @property
    def question(self) -> str:
        """Return the last turn."""
        return self.turns[-1].content


@dataclass(frozen=True)
class Rejection:
    """Why a draft does not enter the test set. reason: one of few words, to be counted. detail: what exactly."""

    draft: Draft
    reason: str
    detail: str


SHOWN = 5  # examples in a prompt


@dataclass(frozen=True)
class Examples:
    """Real queries.

    rows: the same with their evidence, if they are those of a test set. relevant: query_id -> relevant documents, if
    they are of a file that names them.
    """

    queries: tuple[Query, ...] = ()
    rows: tuple[EvidencedQuery, ...] = ()
    relevant: Mapping[str, Collection[str]] = field(default_factory=dict)

    def labels(self, chunks: Sequence[Chunk], folder: DocumentsFolder) -> Mapping[str, Collection[str]]:
        """query_id -> relevant documents, none of which if it needs no retrieval; of labelled queries alone."""
        return span_qrels(self.rows, chunks, folder).grades if self.rows else self.relevant


def read_examples(path: Path) -> Examples:
    """Queries of a test set's folder, or of a file: JSON lines {eval_id, msg} as in the contest, or plain text with one
    query per line. JSON lines may have the contest's `relevant`: ids or grades, empty for a query that needs no
    retrieval. If one line has it, all must have it."""
    if path.is_dir():
        rows = read_queries(path, "examples")
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
        raise BadInput(f"examples: {error}") from None


def example_lines(examples: Sequence[Query], kind: str, *key: object) -> str:
    """Return a few examples for a prompt, one per line, always the same for the same key; "" without examples.

    A prompt for conversations shows conversations where there are any; every other shows the user's last messages.
    """
    talks = [query for query in examples if len(query.user_turns) > 1]
    if kind == "conversation" and talks:
        texts = {" / ".join(f"{turn.role}: {_line(turn.content)}" for turn in query.turns) for query in talks}
    else:
        texts = {_line(query.user_turns[-1]) for query in examples}
    return "\n".join(f"- {text}" for text in picked(texts, SHOWN, *key))


def _line(text: str) -> str:
    return " ".join(text.split())


VERSION = 1
QUERIES, REJECTED, MANIFEST, UNFINISHED = "queries.jsonl", "rejected.jsonl", "testset.json", "unfinished.json"
FILES = (QUERIES, REJECTED)
TEMPORARY = ".unfinished"  # ending of what a killed process leaves of a single file


class TestsetFolder:
    """A test set that is drafted into a folder, or was before.

    settings: what decides the drafts, but for how many documents were shown.
    """

    __test__ = False  # pytest takes classes whose names begin so for its own

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._settings = settings

    def check(self, shown: int) -> None:
        """Raise BadInput unless these drafts may be written here: the folder is new or empty, or has drafts of the same
        settings and of no more documents, which nobody has edited since.

        shown: the number of documents.
        """
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"testset={self.path}: this is a file. Name a folder.")
        there = [self.path / name for name in FILES if (self.path / name).exists()]
        manifest = self._read(MANIFEST)
        if manifest is None and self._read(UNFINISHED) is None:
            if self.path.is_dir() and any(one.suffix != TEMPORARY for one in self.path.iterdir()):
                raise BadInput(
                    f"testset={self.path}: the folder holds something else, without {MANIFEST}. Name a new folder."
                )
            return
        if manifest is not None:
            self._check_settings(manifest, shown)
        for path in there:
            if sha256_of(path) not in self._own(path.name):
                raise BadInput(
                    f"{path} has been edited since it was drafted, and is not overwritten. Draft into another folder, "
                    f"such as testset={self.path}2: replies that are cached cost nothing."
                )

    def write(self, drafts: Iterable[Draft], rejections: Iterable[Rejection], manifest: Mapping[str, Any]) -> None:
        """Write the test set. manifest: what else stands in `testset.json`. `check` comes first."""
        texts = {QUERIES: json_text(map(query_row, drafts)), REJECTED: json_text(map(rejection_row, rejections))}
        digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / UNFINISHED, _json(digests))
        for name, text in texts.items():
            write_text(self.path / name, text)
        write_text(
            self.path / MANIFEST,
            _json({"version": VERSION, **manifest, "settings": self._settings, "files": digests}),
        )
        (self.path / UNFINISHED).unlink(missing_ok=True)  # another process may have drafted the same at once

    def _own(self, name: str) -> set[str]:
        """Return the sha256 of what the harness has written to a file."""
        files = [(self._read(MANIFEST) or {}).get("files"), self._read(UNFINISHED)]
        return {str(one[name]) for one in files if isinstance(one, Mapping) and name in one}

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        return json_file(path) if path.exists() else None

    def _check_settings(self, manifest: Mapping[str, Any], shown: int) -> None:
        where, before = self.path / MANIFEST, manifest.get("settings")
        if not isinstance(before, Mapping):
            raise BadInput(
                f"testset={self.path}: the queries there were not drafted by a language model ({where} has no "
                "settings). Name a new folder."
            )
        old, new = flatten(before), flatten(self._settings)
        if old.get("documents") != new.get("documents"):
            raise BadInput(
                f"testset={self.path} was drafted from other documents. Draft from these into another folder, such as "
                f"testset={self.path}2: replies about documents that are the same are cached."
            )
        for key in [*new, *(key for key in old if key not in new)]:
            if old.get(key) != new.get(key):
                raise BadInput(
                    f"testset={self.path} was drafted with {key}={_short(old.get(key))}, not {_short(new.get(key))}. "
                    f"Draft into another folder, such as testset={self.path}2, or go back to the former value."
                )
        most = manifest.get("shown")
        if not isinstance(most, int) or shown < most:
            raise BadInput(
                f"testset={self.path} was drafted from {most} documents, and this command shows {shown}. Raise limit, "
                f"or draft into another folder, such as testset={self.path}2."
            )


def query_row(draft: Draft) -> dict[str, Any]:
    """Return the line of a draft in `queries.jsonl`."""
    row = {"eval_id": draft.query_id, **_draft_row(draft), "needs": draft.kind != "none"}
    return row | {"flags": list(draft.flags)}


def rejection_row(rejection: Rejection) -> dict[str, Any]:
    """Return the line in `rejected.jsonl`; `msg` is empty where a whole reply was of no use."""
    return {"reason": rejection.reason, "detail": rejection.detail, **_draft_row(rejection.draft)}


def _draft_row(draft: Draft) -> dict[str, Any]:
    return {
        "kind": draft.kind,
        "msg": [asdict(turn) for turn in draft.turns],
        "answer": draft.answer,
        "docid": draft.doc_id,
        "evidence": [evidence_row(one) for one in draft.evidence],
    }


def evidence_row(one: Evidence) -> dict[str, Any]:
    """Return evidence as files have it."""
    return {**asdict(one.span), "exact": one.exact, "prefix": one.prefix, "suffix": one.suffix, "grade": one.grade}


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


SHIPPED = Path(__file__).parents[1] / "prompts"
# Places of a prompt about a document, and of one about none: those that it must have, and those that it may have.
ABOUT_A_DOCUMENT = (("questions", "text"), ("note", "examples"))
ABOUT_NONE = (("questions", "situation"), ("examples",))


def read_prompts(kinds: Sequence[str], language: str, files: Mapping[str, str | None]) -> dict[str, PromptText]:
    """Return the prompt of each kind of query.

    language: ko or en, of the shipped prompts. files: kind -> a file to use instead of the shipped one, or None.
    """
    found = {}
    for kind in kinds:
        given = files[kind]
        path = Path(given) if given else SHIPPED / language / f"{kind}.txt"
        needed, optional = ABOUT_NONE if kind == "none" else ABOUT_A_DOCUMENT
        found[kind] = read_prompt(path, needed, optional, f"prompts.{kind}" if given else "")
    return found


def check_examples(prompts: Mapping[str, PromptText]) -> None:
    """Raise BadInput where a prompt has no place for the examples that the user gives."""
    for kind, prompt in prompts.items():
        if "examples" not in prompt.places:
            raise BadInput(
                f"prompts.{kind} has no {{examples}}, so that examples=FILE would change nothing there. Put "
                "{examples} into the prompt, or leave out examples."
            )


def fill_prompt(prompt: PromptText, values: Mapping[str, str]) -> str:
    """Return the text of a request. values: of all places; a paragraph whose places are all empty is left out."""

    def empty(paragraph: str) -> bool:
        found = [value for name, value in values.items() if f"{{{name}}}" in paragraph]
        return bool(found) and not any(found)

    kept = [paragraph for paragraph in re.split(r"\n{2,}", prompt.text) if not empty(paragraph)]
    return replace(prompt, text="\n\n".join(kept)).filled(**values)


def language_of(text: str) -> str:
    """ko where more than a tenth of the letters are Hangul, as Korean texts have English names; otherwise en."""
    letters = [letter for letter in text if letter.isalpha()]
    hangul = sum("\uac00" <= letter <= "\ud7a3" for letter in letters)
    return "ko" if hangul > len(letters) / 10 else "en"


def situations(language: str, seed: int) -> list[str]:
    """What messages that need no retrieval may be: the kinds of messages in turn, each with a speaker and an occasion.

    `situations.txt` has the kinds, the speakers and the occasions, one per line, with a blank line between.
    """
    text = text_file(SHIPPED / language / "situations.txt", MOST).strip()
    messages, speakers, occasions = (block.split("\n") for block in text.split("\n\n"))
    pairs = [f"{speaker}, {occasion}" for speaker in speakers for occasion in occasions]
    shuffled = {message: picked(pairs, len(pairs), seed, message) for message in messages}
    return [f"{message} ({shuffled[message][number]})" for number in range(len(pairs)) for message in messages]
