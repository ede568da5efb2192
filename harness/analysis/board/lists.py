"""Read the logged files of a run: its lists, its candidates before the gate, and the gate's signal of each query."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.data.files import as_id, json_file, json_rows, numbered_lines, once, required
from harness.data.files import field as checked
from harness.data.predictions import is_contest, trec_order, trec_scores
from harness.errors import BadInput
from harness.gates.rule import Rule
from harness.recording.logged_run import Ahead
from harness.recording.retrieval_run import RUN_FILE
from harness.recording.run_kind import RunKind
from harness.reports.gate_view import SignalRule
from harness.reports.markup import snippet
from harness.reports.run_note import TABLE
from harness.tracking.tracker import LoggedRun, NoFile
from retrievers.base import one_word

DEPTH = 5  # at most this many documents of a list are shown
DETAILED = 200  # only this many of the best runs are shown with scores, signals and the documents before the gate
MOST_TEXT = 600  # at most this many characters of a document are shown
REMEMBERED = 100_000  # at most this many parsed lines of predictions are kept for reuse in similar runs
GATE = "gate.json"


@dataclass(frozen=True, slots=True)
class Returned:
    """The documents that a run returned for a query.

    count: the number of returned documents.
    docs, scores, contents: ids, scores and beginnings of the texts of the first DEPTH documents, the best first.
        `scores` is None and `contents` is () if the file lacks them.
    text: the searched text; None if the file does not have it.
    """

    count: int
    docs: tuple[str, ...]
    scores: tuple[float, ...] | None = None
    text: str | None = None
    contents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retrieved:
    """The lists and signals of a run before its gate. Most trials do not log these.

    candidates: query_id -> {doc_id: score}, best first. White space in ids is percent-encoded.
    signals: query_id -> the gate's signal. Queries without a signal are missing.
    """

    candidates: Mapping[str, Mapping[str, float]]
    signals: Mapping[str, float]

    def of(self, query_id: str) -> Mapping[str, float]:
        return self.candidates.get(one_word(query_id), {})


def files_of(runs: Sequence[LoggedRun]) -> list[tuple[LoggedRun, str]]:
    """Return pairs (run, file name) in reading order. After the first DETAILED runs, only predictions are read."""
    found = []
    for place, run in enumerate(runs):
        found.append((run, RunKind().predictions(run)))
        if place < DETAILED and "sweep.trial" not in run.tags:  # most trials do not log these two files
            found += [(run, RUN_FILE), (run, TABLE)]
    return found


@dataclass
class ListReader:
    files: Ahead
    _known: dict[bytes, tuple[str, Returned]] = field(default_factory=dict)

    def returned(self, run: LoggedRun) -> dict[str, Returned] | None:
        """Return query_id -> the run's list; None if the predictions are gone. Raise BadInput if they are damaged."""
        file = self._download(run, RunKind().predictions(run))
        if file is None:
            return None
        try:
            return self.read(file)
        except BadInput as error:
            raise BadInput(f"Run {run.named}: {error}") from None

    def read(self, file: Path) -> dict[str, Returned]:
        """Return query_id -> list from a file of predictions, in the contest's format or as a TREC run."""
        _, first = next(numbered_lines(file), (0, ""))
        if is_contest(first):
            return self._contest(file)
        found = {}
        for query_id, scores in trec_scores(file).items():
            docs = trec_order(scores)
            found[query_id] = Returned(len(docs), tuple(docs[:DEPTH]), tuple(scores[one] for one in docs[:DEPTH]))
        return found

    def retrieved(self, run: LoggedRun) -> Retrieved | None:
        """Return the lists and signals before the gate; None for scored files and most trials, which log none."""
        file = self._download(run, RUN_FILE)
        if file is None:
            return None
        table = self._download(run, TABLE)
        try:
            return Retrieved(trec_scores(file), {} if table is None else signals(table))
        except BadInput as error:
            raise BadInput(f"Run {run.named}: {error}") from None

    def gate(self, run: LoggedRun, learnt: bool = True) -> SignalRule | None:
        """Return the rule of a run's gate; None if no threshold or rule is logged. learnt: also read learnt rules."""
        if run.params.get("gate") == "score":
            source, signal, threshold = (run.params[f"gate.{name}"] for name in ("source", "signal", "threshold"))
            name = signal if source == "null" else f"{source} {signal}"
            return SignalRule(name, (int(run.params["top_k"]), 0), (float(threshold),))
        scored = run.tags.get("harness.verb") == "score"
        if not learnt or scored or run.params.get("gate") in (None, "none", "llm"):
            return None
        file = self._download(run, GATE)
        if file is None:
            return None
        rule = Rule.from_json(required(json_file(file), "rule", str(file)), f"{GATE} of run {run.short_id}: rule")
        return SignalRule.of(rule)

    def _download(self, run: LoggedRun, name: str) -> Path | None:
        try:
            return self.files.download(run, name)
        except NoFile:
            return None

    def _contest(self, file: Path) -> dict[str, Returned]:
        seen: dict[str, int | str] = {}
        found = {}
        for number, line in numbered_lines(file):
            raw = line.encode()
            key = hashlib.sha256(raw).digest()
            if key not in self._known:
                [(_, row)] = json_rows(raw, file, number)
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[key] = _row(row, f"{file}:{number}")
            query_id, one = self._known[key]
            once(seen, query_id, "eval_id", file, number)
            found[query_id] = one
        return found


def signals(file: Path) -> dict[str, float]:
    """Return query_id -> signal from a table made by `reports.run_page.query_table`."""
    content = json_file(file)
    columns = checked(content, "columns", list, str(file))
    if not {"query_id", "signal"} <= {one for one in columns if isinstance(one, str)}:
        raise BadInput(f"{file}: `columns` lacks query_id or signal. Repeat the run.")
    query_id, signal = columns.index("query_id"), columns.index("signal")
    found = {}
    for row in checked(content, "data", list, str(file)):
        if not isinstance(row, list) or len(row) != len(columns):
            raise BadInput(f"{file}: `data` has the row {row!r:.60}, but each row must have {len(columns)} cells.")
        if (value := _number(row[signal])) is not None:
            found[str(row[query_id])] = value
    return found


def _row(row: Mapping[str, Any], where: str) -> tuple[str, Returned]:
    query_id, _ = as_id(required(row, "eval_id", where), "eval_id", where)
    docs = [as_id(one, "an id in topk", where)[0] for one in checked(row, "topk", list, where)]
    references, text = row.get("references"), row.get("standalone_query")
    listed = [one for one in references if isinstance(one, dict)] if isinstance(references, list) else []
    listed = listed[:DEPTH] if len(listed) == len(docs) else []
    contents = [one["content"] for one in listed if isinstance(one.get("content"), str)]
    return query_id, Returned(
        len(docs),
        tuple(docs[:DEPTH]),
        _scores([one.get("score") for one in listed]),
        text if isinstance(text, str) and text else None,
        tuple(snippet(one, MOST_TEXT) for one in contents) if len(contents) == len(listed) else (),
    )


def _scores(values: Sequence[Any]) -> tuple[float, ...] | None:
    numbers = [_number(one) for one in values]
    found = tuple(one for one in numbers if one is not None)
    return found if found and len(found) == len(numbers) else None


def _number(value: Any) -> float | None:
    """Return a JSON number as a float; None for other values and for integers that are too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return float(value)
