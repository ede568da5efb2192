"""The folder of a test set, written: queries, rejected drafts and a manifest, none of which replaces a person's work.

queries.jsonl, rejected.jsonl: one line per draft. testset.json: what made them and their sha256, written last.
unfinished.json: the sha256 of files that are being written, so that a killed process's are known as the harness's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.config.canonical import flatten
from harness.data.files import json_file, json_text, sha256_of
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.testset.drafts import Draft, Rejection

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
        """BadInput unless these drafts may be written here: the folder is new or empty, or has drafts of the same
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
        """The sha256 of what the harness has written to a file."""
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
    """A line of `queries.jsonl`."""
    return {
        "eval_id": draft.query_id,
        "msg": [asdict(turn) for turn in draft.turns],
        "kind": draft.kind,
        "needs": draft.kind != "none",
        "answer": draft.answer,
        "docid": draft.doc_id,
        "evidence": _evidence(draft),
        "flags": list(draft.flags),
    }


def rejection_row(rejection: Rejection) -> dict[str, Any]:
    """A line of `rejected.jsonl`; `msg` is empty where a whole reply was of no use."""
    draft = rejection.draft
    return {
        "reason": rejection.reason,
        "detail": rejection.detail,
        "kind": draft.kind,
        "msg": [asdict(turn) for turn in draft.turns],
        "answer": draft.answer,
        "docid": draft.doc_id,
        "evidence": _evidence(draft),
    }


def _evidence(draft: Draft) -> list[dict[str, Any]]:
    return [
        {**asdict(one.span), "exact": one.exact, "prefix": one.prefix, "suffix": one.suffix, "grade": one.grade}
        for one in draft.evidence
    ]


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
