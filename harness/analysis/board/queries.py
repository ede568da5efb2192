"""Single queries on a board: the value, the list and the gate's signal of every run, and the documents.

Numbers and texts are packed for the page by raw deflate and base64.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.board.lists import DEPTH, DETAILED, MOST_TEXT, ListReader, Retrieved, Returned, files_of
from harness.analysis.board.runs import LOSSES, BoardRuns, Submissions
from harness.data.attributes import MOST_VALUES, attributes_of, slices_by
from harness.data.dataset import Dataset
from harness.errors import BadInput
from harness.gates.rule import json_number
from harness.progress import stage, watch
from harness.recording.logged_run import Ahead, load_unchanged, logged_config, logged_value
from harness.reports.gate_view import SignalRule
from harness.reports.markup import snippet
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import one_word

PARTS = ("data.documents", "data.queries", "data.qrels")
DIGITS, FEWER_DIGITS = 6, 4  # decimals of a value, see LISTED
LISTED = 65_536  # with more distinct pairs (value, kind of loss), values have FEWER_DIGITS instead of DIGITS
_DEFLATED = -15  # zlib's wbits for raw deflate, the format that browsers call "deflate-raw"
MISSED = 5  # besides the first DEPTH documents of a list, at most this many relevant documents are shown
RELEVANT = 20  # the page always has a query's relevant documents with the highest grades, up to this many
BLOCK = 64  # the number of documents that are packed together
TEXTS, LEAST_TEXT = 6_000_000, 90  # at most TEXTS characters of documents in all; no text is cut below LEAST_TEXT
QUERY_TEXT = 300  # a query's title on the page has at most this many characters
NAMED = 5  # a notice names at most this many runs
ITEMS = 1000  # the page has the texts of at most this many items of a text task


@dataclass(frozen=True, eq=False)
class ReadAgain:
    """The data of some runs, read again. A field is None if its data have changed or cannot be read.

    grades: query_id -> {doc_id: grade} of the relevant documents.
    """

    dataset: Dataset | None = None
    grades: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Notice:
    """A note on something that a board does not show. The script of the page puts the note into words.

    kind: "unread": data could not be read again. "unmarked": labels have changed. "gone": lists were deleted.
        "best": only the best runs have details. "cut": some documents lack texts. "items": only some items have texts.
    """

    kind: str
    count: int
    why: str = ""


def read_again(runs: Sequence[LoggedRun], tracker: Tracker) -> tuple[list[ReadAgain], list[int], list[Notice]]:
    """Read each dataset once. Return (the data, the index of each run's data, notices about unread data)."""
    keys = [tuple(run.tags.get(part) for part in PARTS) for run in runs]
    distinct = list(dict.fromkeys(keys))
    found, notes = [], []
    for key in distinct:
        data, why = _read(runs[keys.index(key)], tracker)
        found.append(data)
        if why:
            notes.append(Notice("unmarked" if data.dataset else "unread", keys.count(key), why))
    return found, [distinct.index(key) for key in keys], notes


def _read(run: LoggedRun, tracker: Tracker) -> tuple[ReadAgain, str]:
    if "data.documents" not in run.tags:
        return ReadAgain(), "scored files do not record their documents."
    try:
        with stage("reading the data again"):
            dataset = load_unchanged(run, logged_value(logged_config(tracker, run), "dataset", dict))
    except (BadInput, OSError) as error:
        return ReadAgain(), str(error)
    if dataset.qrels is None or dataset.fingerprints["qrels"] != run.tags.get("data.qrels"):
        return ReadAgain(dataset), f"The labels have changed since run {run.short_id}."
    return ReadAgain(dataset, dataset.qrels.grades), ""


def packed(content: bytes) -> str:
    """Return the deflated bytes as a text that needs no escaping in JSON and HTML."""
    packer = zlib.compressobj(level=9, wbits=_DEFLATED)
    return base64.b64encode(packer.compress(content) + packer.flush()).decode()


def packed_json(value: Any) -> str:
    return packed(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())


def packed_places(places: np.ndarray) -> dict[str, Any]:
    """Pack integers >= 0 as {bits, data}: little-endian, each in 8, 16 or 32 bits, as the largest requires."""
    most = int(places.max(initial=0))
    bits = next(one for one in (8, 16, 32) if most < 2**one)
    return {"bits": bits, "data": packed(places.astype(f"<u{bits // 8}").tobytes())}


def packed_matrix(values: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    """Pack the values and kinds of loss of R runs on Q queries as {table, cells}.

    table: the distinct pairs (value or None, index of the kind of loss). Values have six decimals, or four if
        there would be more than LISTED pairs.
    cells: [Q, R], for each query and run, the index of its pair in `table`.

    values: float [R, Q], NaN if undefined. losses: int [R, Q].
    """
    for digits in (DIGITS, FEWER_DIGITS):
        rounded = np.round(values.T, digits) + 0.0  # turns -0.0 into 0.0
        known, value_at = np.unique(rounded, return_inverse=True)  # all NaN become one value, the last
        kinds = int(losses.max(initial=0)) + 1
        pairs, cells = np.unique(value_at.reshape(rounded.shape) * kinds + losses.T, return_inverse=True)
        if len(pairs) <= LISTED:
            break
    listed = [None if value != value else value for value in known.tolist()]
    table = [(listed[pair // kinds], pair % kinds) for pair in pairs.tolist()]
    return {"table": table, "cells": packed_places(cells)}


def details(runs: BoardRuns, tracker: Tracker, folder: Path) -> dict[str, Any]:
    """Return the data of single queries, with notices about what is missing. Raise BadInput for damaged files."""
    logged = [one.run for one in runs.runs]
    data, data_of, notices = read_again(logged, tracker)
    collected = Collected(runs, data)
    gates: list[SignalRule | None] = [None] * len(logged)
    gone = []
    with watch("reading lists") as progress, Ahead(tracker, files_of(logged), folder) as files:
        reader = ListReader(files)
        for place, run in enumerate(logged):
            returned = reader.returned(run)
            if returned is None:
                gone.append(run.short_id)
            else:
                detailed = place < DETAILED
                gates[place] = reader.gate(run, learnt=detailed)
                collected.add(place, data_of[place], returned, reader.retrieved(run) if detailed else None)
            progress(place + 1, len(logged), "runs")
    if gone:
        notices.append(Notice("gone", len(gone), ", ".join(gone[:NAMED])))
    if len(logged) > DETAILED:
        notices.append(Notice("best", DETAILED))
    return collected.details(gates, notices)


def item_details(runs: BoardRuns, found: Submissions) -> dict[str, Any]:
    """Return the details of submissions to a text task.

    The dict `about` of each item has two keys: `texts`, the texts of the item, and `said`, the prediction of each run
    as `TextTask.marked` returns it, or None. Only the ITEMS items on which the runs differ most have these values.
    """
    spread = np.nan_to_num(runs.values.max(axis=0) - runs.values.min(axis=0))
    listed = {*np.argsort(-spread, kind="stable")[:ITEMS].tolist()}
    titles, about = [], []
    for place, item_id in enumerate(found.item_ids):
        texts, items = found.texts(item_id)
        texts = {name: text for name, text in texts.items() if text}
        titles.append(
            next((snippet(texts[name], QUERY_TEXT) for name in ("question", "source") if name in texts), None)
        )
        said = [found.task.marked(item) if item and place in listed else None for item in items]
        about.append({"texts": [*texts.items()] if place in listed else [], "said": said})
    left = len(about) - len(listed)
    return _page_data(runs) | {
        "titles": packed_json(titles),
        "queries": [{"about": packed_json(one)} for one in about],
        "notices": [astuple(Notice("items", ITEMS))] * (left > 0),
    }


def _page_data(runs: BoardRuns) -> dict[str, Any]:
    flags = {"needs": runs.needs, "multi_turn": runs.multi_turn, "public": runs.public}
    return {
        "kinds": LOSSES,
        "ids": runs.query_ids,
        **{name: "".join("01"[int(one)] for one in values) for name, values in flags.items()},
        "matrix": packed_matrix(runs.values, runs.losses),
    }


@dataclass
class _Query:
    """The distinct values collected for one query, each with its index."""

    lists: dict[tuple[int, int, tuple[str, ...]], int] = field(default_factory=dict)  # (count, data, doc_ids)
    texts: dict[str, int] = field(default_factory=dict)
    scores: dict[tuple[float, ...], int] = field(default_factory=dict)
    seen: dict[int, list[Any]] = field(default_factory=dict)


class Collected:
    """Collects the lists, texts, scores and signals of runs by query. Equal lists are kept once."""

    def __init__(self, runs: BoardRuns, data: list[ReadAgain]) -> None:
        self._runs, self._data = runs, data
        self._queries = [_Query() for _ in runs.query_ids]
        self._lists = np.zeros((len(runs.query_ids), len(runs.runs)), np.int32)
        self._texts = np.zeros_like(self._lists)
        self._documents: dict[tuple[int, str], int] = {}  # (index of the data, doc_id) -> index of the document
        self._contents: dict[tuple[int, str], str] = {}  # texts from predictions, used if the data cannot be read again
        self._asked = {q.query_id: q.turns for one in data if one.dataset for q in one.dataset.queries}
        self._words = [
            {word: one for one in (each.dataset.by_id if each.dataset else ()) if (word := one_word(one)) != one}
            for each in data
        ]  # id as TREC runs write it -> id, if the two differ

    def add(self, place: int, data: int, returned: Mapping[str, Returned], behind: Retrieved | None) -> None:
        """Collect a run. place, data: the indices of the run and its data. behind: the run's lists before its gate.

        returned: query_id -> the list that the run returned.
        """
        detailed = place < DETAILED
        lists, texts = [0] * len(self._queries), [0] * len(self._queries)
        for row, (query_id, query) in enumerate(zip(self._runs.query_ids, self._queries, strict=True)):
            if (one := returned.get(query_id)) is None:
                continue
            if not self._data[data].dataset:
                self._contents |= {(data, doc): text for doc, text in zip(one.docs, one.contents, strict=False)}
            docs, scores, below = one.docs, one.scores, []
            if behind and (candidates := behind.of(query_id)):
                words = self._words[data]
                ranked = [words.get(word, word) for word in candidates]
                docs, scores = tuple(ranked[:DEPTH]), tuple([*candidates.values()][:DEPTH])
                below = self._below(data, query_id, ranked)
            lists[row] = query.lists.setdefault((one.count, data, docs), len(query.lists)) + 1
            if one.text is not None:
                texts[row] = query.texts.setdefault(one.text, len(query.texts)) + 1
            if detailed and (scores or behind):
                shown = tuple(_short(score) for score in scores or ())
                at = query.scores.setdefault(shown, len(query.scores)) if scores else None
                signal = behind.signals.get(query_id) if behind else None
                query.seen[place] = [at, None if signal is None else _short(signal), below, int(bool(behind))]
        self._lists[:, place], self._texts[:, place] = lists, texts

    def details(self, gates: list[SignalRule | None], notices: list[Notice]) -> dict[str, Any]:
        """Return all that was collected, in the format that the page of a board unpacks.

        ids: the ids of the Q queries, ascending. needs, multi_turn, public: a "1" or "0" for each query.
        matrix: see `packed_matrix`.
        attributes: [name, values, the index of each query's value], in order of the names, for attributes with 2 to
            MOST_VALUES values; [] if the data could not be read.
        titles: the text of each query; None if unknown.
        queries: {about, lists, texts} for each query. `lists` and `texts` have a number for each run: 1 + the index of
            its list in `about.lists` or of its text in `about.texts`; 0 if it has none. Keys of `about`:
            turns: [role, text], or None.
            lists: [number of documents returned, indices of the first documents].
            texts: the searched texts.
            grades: {document: grade}, or None.
            scores: the scores of each list.
            seen: {run: [index in scores or None, the gate's signal or None, missed, flag]} for the best runs.
                missed: [document, rank] of relevant documents below the list. flag: 1 for a list from before the gate.
        documents: [id, title, beginning of the text or None], in blocks. `about` refers to documents by their index.
        gates: [name, levels, thresholds] for each run; None if it has no threshold, or if its gate is learnt and the
            run is not among the best.
        notices: see `Notice`.
        """
        runs = self._runs
        lists = self._listed()
        grades = [self._grades(query_id) for query_id in runs.query_ids]
        turns = [self._turns(query_id) for query_id in runs.query_ids]
        documents, cut = self._shown_documents()
        rules = [one and [one.name, one.levels, [json_number(value) for value in one.thresholds]] for one in gates]
        return _page_data(runs) | {
            "titles": packed_json([self._title(row, turns[row]) for row in range(len(turns))]),
            "attributes": self._attributes(),
            "queries": [
                {
                    "about": packed_json({
                        "turns": turns[row],
                        "lists": lists[row],
                        "texts": list(query.texts),
                        "grades": grades[row],
                        "scores": list(query.scores),
                        "seen": query.seen,
                    }),
                    "lists": packed_places(self._lists[row]),
                    "texts": packed_places(self._texts[row]),
                }
                for row, query in enumerate(self._queries)
            ],
            "block": BLOCK,
            "documents": [packed_json(documents[at : at + BLOCK]) for at in range(0, len(documents), BLOCK)],
            "gates": packed_json(rules),
            "notices": [astuple(one) for one in (*notices, *cut)],
        }  # fmt: skip

    def _place(self, data: int, doc_id: str) -> int:
        return self._documents.setdefault((data, doc_id), len(self._documents))

    def _listed(self) -> list[list[tuple[int, list[int]]]]:
        """Return the lists of each query as `details` packs them. Documents of better runs get smaller indices."""
        found: list[list[tuple[int, list[int]]]] = [[] for _ in self._queries]
        for lists in zip_longest(*(query.lists for query in self._queries)):
            for row, one in enumerate(lists):
                if one is not None:
                    count, data, docs = one
                    found[row].append((count, [self._place(data, doc) for doc in docs]))
        return found

    def _below(self, data: int, query_id: str, ranked: list[str]) -> list[list[int]]:
        relevant = (self._data[data].grades or {}).get(query_id, {})
        found = [(rank, doc) for rank, doc in enumerate(ranked, start=1) if rank > DEPTH and doc in relevant]
        return [[self._place(data, doc), rank] for rank, doc in found[:MISSED]]

    def _grades(self, query_id: str) -> dict[int, float] | None:
        """Return {document: grade} of the relevant documents; None if no labels are known."""
        if all(one.grades is None for one in self._data):
            return None
        found: dict[int, float] = {}
        for data, one in enumerate(self._data):
            graded = sorted((one.grades or {}).get(query_id, {}).items(), key=lambda item: (-item[1], item[0]))
            known = [(doc, grade) for doc, grade in graded if (data, doc) in self._documents]
            found |= {self._place(data, doc): grade for doc, grade in dict([*graded[:RELEVANT], *known]).items()}
        return found

    def _attributes(self) -> list[tuple[str, list[str], dict[str, Any]]]:
        read = next((one for one in self._data if one.dataset), None)  # all runs have the same queries
        if read is None or read.dataset is None:
            return []
        qrels = read.dataset.qrels if read.grades is not None else None
        known = attributes_of(read.dataset.queries, qrels)
        found = []
        for name in sorted(name for name, values in known.items() if len({*values.values()}) <= MOST_VALUES):
            slices = slices_by([name], known, self._runs.query_ids)
            if len(slices) > 1:
                places = np.argmax([one.inside for one in slices], axis=0)
                found.append((name, [one.value for one in slices], packed_places(places)))
        return found

    def _turns(self, query_id: str) -> list[tuple[str, str]] | None:
        turns = self._asked.get(query_id)
        return None if turns is None else [(turn.role, turn.content) for turn in turns]

    def _title(self, row: int, turns: list[tuple[str, str]] | None) -> str | None:
        asked = " ".join(text for role, text in turns or () if role == "user")
        searched = next(iter(self._queries[row].texts), None)
        return snippet(asked, QUERY_TEXT) if asked else searched and snippet(searched, QUERY_TEXT)

    def _shown_documents(self) -> tuple[list[tuple[str, str, str | None]], list[Notice]]:
        most = TEXTS // LEAST_TEXT
        length = min(MOST_TEXT, max(LEAST_TEXT, TEXTS // max(len(self._documents), 1)))
        found = []
        for number, (data, doc_id) in enumerate(self._documents):
            dataset = self._data[data].dataset
            document = dataset.by_id.get(doc_id) if dataset and number < most else None
            text = document.text if document else self._contents.get((data, doc_id)) if number < most else None
            title = snippet(document.title, length) if document else ""
            found.append((doc_id, title, None if text is None else snippet(text, length)))
        left = len(found) - most
        return found, [Notice("cut", left)] * (left > 0)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
