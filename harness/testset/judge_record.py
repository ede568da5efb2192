"""What is known of the models that have judged a test set: judge.json.

judge.json: {version, judges: {by: {model, base_url, prompt, language, at, judged, grades, seeds, controls, warnings,
usage}}}, one for each judge in `judgements.jsonl`. `grades` counts "0" to "3" and "null"; `seeds` and each of
`controls` are {count, of, low, high}: how many were graded relevant, with Wilson's interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.text import short_id
from harness.data.files import field, json_file, required, some
from harness.errors import BadInput
from harness.evaluation.proportions import Proportion
from harness.storage.atomic import write_text
from harness.testset import controls
from harness.testset.judgements import GRADES
from harness.testset.pool import Pool

RECORD = "judge.json"
VERSION = 1
OPEN = "null"  # the name of an open grade
GRADE_NAMES = (*(str(grade) for grade in GRADES), OPEN)


@dataclass(frozen=True)
class JudgeRecord:
    """What is known of one judge.

    by: its name in judgements. prompt: sha256 of the prompt. language: of the shipped prompt, "" for one of the user's.
    at: when it last judged. grades: of GRADE_NAMES -> the number of its judgements that hold.
    seeds: of the documents with evidence that it has judged, those graded relevant; None without any.
    controls: of `controls.KINDS` -> those graded relevant. warnings: sentences. usage: tokens and cost of all replies.
    """

    by: str
    model: str
    base_url: str
    prompt: str
    language: str
    at: str
    grades: Mapping[str, int]
    seeds: Proportion | None
    controls: Mapping[str, Proportion]
    warnings: tuple[str, ...]
    usage: Mapping[str, Any]

    @property
    def judged(self) -> int:
        """The number of its judgements that hold."""
        return sum(self.grades.values())


def read_records(folder: Path) -> dict[str, JudgeRecord]:
    """by -> record of each judge of a test set; empty without `judge.json`. BadInput for a damaged file."""
    path = folder / RECORD
    if not path.exists():
        return {}
    content = json_file(path)
    if (version := required(content, "version", str(path))) != VERSION:
        raise BadInput(f"{path}: version is {version!r:.60}, but this harness reads version {VERSION}.")
    judges = field(content, "judges", dict, str(path))
    return {by: _record(by, one, f"{path}: judges.{by:.60}") for by, one in judges.items()}


def write_record(folder: Path, record: JudgeRecord) -> None:
    """Add the record of a judge, in place of an earlier one of the same. Under `hold.held`."""
    records = {**read_records(folder), record.by: record}
    content = {"version": VERSION, "judges": {by: row(one) for by, one in sorted(records.items())}}
    write_text(folder / RECORD, json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def circular(model: str, manifest: Mapping[str, Any], pool: Pool) -> list[str]:
    """Warnings that a judge judges itself, as sentences: the same model has drafted the queries, or was asked by a
    pooled run. Names are compared without what stands before a slash, and without case.

    manifest: `testset.json`.
    """
    said = []
    settings = manifest.get("settings")
    drafter = settings.get("llm") if isinstance(settings, Mapping) else None
    drafter = drafter.get("model") if isinstance(drafter, Mapping) else None
    if isinstance(drafter, str) and _same(model, drafter):
        said.append(
            f"{model} has drafted the queries as well: it may find its own questions easy, and its own evidence "
            "right. Judge with another model."
        )
    keys: dict[str, list[str]] = {}
    for run_id, run in pool.about.runs.items():
        for key, name in run.models.items():
            if _same(model, name):
                keys.setdefault(key, []).append(short_id(run_id))
    for key, runs in sorted(keys.items()):
        said.append(
            f"{model} was asked by pooled runs as well ({key} of {some(runs)}): a judge prefers what it has itself "
            "ranked or written, so that these runs score too high. Judge with another model."
        )
    return said


def row(record: JudgeRecord) -> dict[str, Any]:
    """A record as plain JSON."""
    return {
        "model": record.model,
        "base_url": record.base_url,
        "prompt": record.prompt,
        "language": record.language,
        "at": record.at,
        "judged": record.judged,
        "grades": dict(record.grades),
        "seeds": record.seeds and _proportion_row(record.seeds),
        "controls": {kind: _proportion_row(one) for kind, one in record.controls.items()},
        "warnings": list(record.warnings),
        "usage": dict(record.usage),
    }


def _same(one: str, other: str) -> bool:
    return one.rpartition("/")[2].casefold() == other.rpartition("/")[2].casefold()


def _proportion_row(one: Proportion) -> dict[str, Any]:
    low, high = one.interval
    return {"count": one.count, "of": one.of, "low": low, "high": high}


def _record(by: str, value: Any, where: str) -> JudgeRecord:
    if not isinstance(value, dict):
        raise BadInput(f"{where} is {value!r:.60}, but must be an object.")
    grades, seeds = field(value, "grades", dict, where), required(value, "seeds", where)
    found = field(value, "controls", dict, where)
    warnings = field(value, "warnings", list, where)
    if set(grades) != set(GRADE_NAMES) or not all(type(count) is int and count >= 0 for count in grades.values()):
        raise BadInput(f"{where}: grades is {grades!r:.60}, but must have a count for {', '.join(GRADE_NAMES)}.")
    if not set(found) <= set(controls.KINDS):
        raise BadInput(f"{where}: controls has {', '.join(found)!r:.60}, but knows {', '.join(controls.KINDS)} alone.")
    if not all(isinstance(one, str) for one in warnings):
        raise BadInput(f"{where}: warnings must be sentences.")
    usage = field(value, "usage", dict, where)
    if type(requests := usage.get("requests")) is not int or requests < 0:
        raise BadInput(f"{where}: usage.requests is {requests!r:.60}, but must be a whole number from 0.")
    texts = {key: field(value, key, str, where) for key in ("model", "base_url", "prompt", "language", "at")}
    return JudgeRecord(
        by=by,
        **texts,
        grades=grades,
        seeds=None if seeds is None else _proportion(seeds, f"{where}: seeds"),
        controls={kind: _proportion(one, f"{where}: controls.{kind}") for kind, one in found.items()},
        warnings=tuple(warnings),
        usage=usage,
    )


def _proportion(value: Any, where: str) -> Proportion:
    if not isinstance(value, dict):
        raise BadInput(f"{where} is {value!r:.60}, but must be an object {{count, of, low, high}}.")
    count, of = required(value, "count", where), required(value, "of", where)
    if type(count) is not int or type(of) is not int or not 0 <= count <= of or not of:
        raise BadInput(
            f"{where}: count {count!r:.60} and of {of!r:.60} must be whole numbers, 0 <= count <= of, of > 0."
        )
    return Proportion(count, of)
