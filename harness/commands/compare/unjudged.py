"""Documents that compared runs show and nobody has judged: which runs the holes in the labels punish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.text import counted
from harness.data.files import some
from harness.data.predictions import read_predictions
from harness.errors import BadInput
from harness.evaluation.judged import judge
from harness.evaluation.losses import SHOWN
from harness.evaluation.measures import parse
from harness.evaluation.scores import plain
from harness.tracking.logged_run import load_unchanged, logged_value, read_config
from harness.tracking.tracker import LoggedRun
from retrievers.base import Qrels

GAP = 0.05  # difference in the share of judged documents from which on it is said
NAMED = 10  # documents named in a sentence


@dataclass(frozen=True)
class ScoredLists:
    """What is read of a run. query_ids: those that are compared. predictions, config: its files."""

    label: str
    run: LoggedRun
    query_ids: Sequence[str]
    predictions: Path
    config: Path


@dataclass(frozen=True)
class UnjudgedDocument:
    """A document that a run shows a query at a rank, and that nobody has judged. run: its label."""

    run: str
    query_id: str
    doc_id: str
    rank: int


@dataclass(frozen=True)
class Unjudged:
    """How much of the first k documents of each run was judged.

    judged: label -> the mean share over the queries that are shown documents, NaN if there are none.
    documents: to judge first, those of runs of which less was judged than of another by more than GAP.
    notes: what a reader must know, in sentences.
    """

    k: int
    judged: Mapping[str, float]
    documents: Sequence[UnjudgedDocument]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain({"k": self.k, "judged": dict(self.judged)})
        return found | {"documents": [asdict(one) for one in self.documents]}


def unjudged(runs: Sequence[ScoredLists]) -> tuple[Unjudged | None, list[str]]:
    """(what the labels leave open; None where they do not say which documents were judged, notes)."""
    try:
        labels = _labels(runs)
    except (BadInput, OSError) as error:
        return None, [f"How much of the documents shown was judged is unknown, since labels could not be read: {error}"]
    notes = _unmet(labels[runs[0].label], runs[0].query_ids)
    if not all(any((qrels.not_relevant or {}).values()) for qrels in labels.values()):
        return None, notes
    k = min(int(read_config(run.config).get("top_k", SHOWN)) for run in runs)
    judged: dict[str, float] = {}
    documents: dict[str, list[UnjudgedDocument]] = {}
    for run in runs:
        judged[run.label], documents[run.label] = _shown(run, labels[run.label], k)
    punished, warnings = _warnings(judged, k)
    listed = [one for label in punished for one in documents[label]]
    named = [_named(label, documents[label]) for label in punished]
    return Unjudged(k, judged, listed, [*warnings, *named]), notes


def _labels(runs: Sequence[ScoredLists]) -> dict[str, Qrels]:
    """label -> the labels of the run, read once for all runs with the same. BadInput if they have changed since."""
    found: dict[str, Qrels] = {}
    for run in runs:
        digest = run.run.tags["data.qrels"]
        if digest not in found:
            source = logged_value(read_config(run.config), "dataset", dict)
            qrels = load_unchanged(run.run, source, ("qrels",)).qrels
            assert qrels is not None  # its fingerprint is that of the run's
            found[digest] = qrels
    return {run.label: found[run.run.tags["data.qrels"]] for run in runs}


def _unmet(qrels: Qrels, query_ids: Sequence[str]) -> list[str]:
    """A note on queries that every run fails."""
    unmet = [query_id for query_id in query_ids if query_id in qrels.unmet]
    if not unmet:
        return []
    need = "needs" if len(unmet) == 1 else "need"
    return [
        f"{counted(len(unmet), 'query')} {need} retrieval, and no document that was judged is relevant, so that every "
        f"run scores 0 there: {some(unmet)}."
    ]


def _shown(run: ScoredLists, qrels: Qrels, k: int) -> tuple[float, list[UnjudgedDocument]]:
    """(mean share of judged documents among the first k, those that nobody has judged)."""
    lists = read_predictions(run.predictions)
    found = judge(lists, qrels, [query_id for query_id in run.query_ids if query_id in qrels.grades])
    assert found.holes is not None
    shares = parse(f"judged@{k}").values(found)
    known = shares[~np.isnan(shares)]
    holes = found.holes
    documents = []
    for row, column in np.argwhere((holes.first & ~found.known & found.needs[:, None])[:, :k]).tolist():
        doc_id = holes.doc_ids[holes.docs[row, column]]
        documents.append(UnjudgedDocument(run.label, holes.query_ids[row], doc_id, column + 1))
    return float(known.mean()) if len(known) else np.nan, documents


def _warnings(judged: Mapping[str, float], k: int) -> tuple[list[str], list[str]]:
    """(labels of the runs that the labels punish, a sentence for each pair that differs by more than GAP)."""
    punished: dict[str, None] = {}
    said = []
    for pair in combinations(judged, 2):
        less, more = sorted(pair, key=judged.__getitem__)
        if judged[more] - judged[less] > GAP:
            punished[less] = None
            said.append(
                f"Warning: less of {less} was judged than of {more}: judged@{k} is {judged[less]:.3f} against "
                f"{judged[more]:.3f}. Documents that nobody has judged count as not relevant, which punishes {less}."
            )
    return [*punished], said


def _named(label: str, documents: Sequence[UnjudgedDocument]) -> str:
    pairs = [f"{one.doc_id} for query {one.query_id}" for one in documents]
    whole = " All are in comparison.json." if len(pairs) > NAMED else ""
    return f"Documents of {label} to judge: {some(pairs, NAMED)}.{whole}"
