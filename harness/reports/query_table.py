"""The table of queries on a run's page and in MLflow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from harness.data.dataset import Dataset
from harness.evaluation.judged import judge
from harness.evaluation.losses import losses
from harness.evaluation.measures import OOF
from harness.pipeline.steps import Outcome
from harness.reports.markup import finite, snippet
from retrievers.base import Ranking

DECISIONS = {  # of a gate, by the loss of a query
    None: "not labelled",
    "wrongly_returned": "wrongly_returned",
    "wrongly_withheld": "wrongly_withheld",
}


def query_table(outcome: Outcome, dataset: Dataset, objective: str) -> dict[str, list[Any]]:
    """column -> values as JSON has them, one row per query; None for what is unknown or does not apply.

    decision:  the gate's: right, wrongly_returned, wrongly_withheld, not labelled.
    loss:      the kind of loss of 1 - modified_map@3, "" for a query without loss.
    objective: under its own name, then out of fold if the run learnt from labels.
    signal:    what the gate decided by.
    needs:     whether the query needs retrieval.
    kept:      whether the gate returns documents.
    shown:     number of documents returned.
    first_hit: rank of the first relevant document before the gate, 0 if there is none.
    hits:      number of relevant documents among those returned.
    documents: those returned, by id and title, with a tick before the relevant ones.
    """
    final, scores, signal = outcome.final, outcome.scores, outcome.decision.signal
    ids = [query.query_id for query in outcome.queries]
    place = {query_id: i for i, query_id in enumerate(scores.query_ids)} if scores else {}
    loss, hits = judged(outcome, dataset, place, final, outcome.decision.keep)

    def cells(values: Any) -> list[Any]:
        """Cells in the order of the queries. values: in the order of the scores."""
        return [None if values is None or i not in place else _cell(values[place[i]]) for i in ids]

    lost, first = cells(loss), cells(scores and scores.first_hit)
    table = {
        "query_id": ids,
        "query": [query.text for query in outcome.queries],
        "decision": [DECISIONS.get(kind, "right") for kind in lost],
        "loss": lost,
        objective: cells(scores and scores.values.get(objective)),
    }
    if outcome.held_out and objective in outcome.held_out.values:
        table[f"{OOF}{objective}"] = cells(outcome.held_out.values[objective])
    table |= {
        "signal": [None] * len(ids) if signal is None else [_cell(value) for value in signal],
        "needs": cells(scores and scores.needs),
        "kept": outcome.decision.keep.tolist(),
        "shown": final.lengths.tolist(),
        "first_hit": [rank if rank is None else int(rank) for rank in first],
        "hits": cells(hits),
    }
    return table | {"documents": [_listed(outcome, dataset, row) for row in range(len(ids))]}


def judged(
    outcome: Outcome, dataset: Dataset, scored: Iterable[str], final: Ranking, keep: np.ndarray
) -> tuple[list[str], np.ndarray]:
    """Of the scored queries: (kind of loss, "" if none; int [N], number of relevant documents among those returned).

    final: the lists that are returned. keep: bool [Q], whether a query passes the gate.
    """
    if dataset.qrels is None:
        return [], np.zeros(0, int)
    place = {query.query_id: row for row, query in enumerate(outcome.queries)}
    wanted = list(scored)
    after, before = (judge(lists, dataset.qrels, wanted) for lists in (final, outcome.candidates))
    lost = losses(after, before, keep[[place[query_id] for query_id in wanted]])
    kinds = np.full(len(wanted), "", dtype=object)
    for kind, values in lost.items():
        kinds[values > 0] = kind
    return kinds.tolist(), after.hits[:, -1].astype(int)


def _listed(outcome: Outcome, dataset: Dataset, row: int) -> str:
    """The documents returned for a query, one per line."""
    relevant = dataset.qrels.grades.get(outcome.queries[row].query_id, {}) if dataset.qrels else {}
    returned = [dataset.by_id[doc_id] for doc_id, _ in outcome.final.row(row)]
    return "\n".join(
        f"{'✓ ' if one.doc_id in relevant else ''}{one.doc_id} {snippet(one.title or one.text)}" for one in returned
    )


def _cell(value: Any) -> Any:
    """A text, or a NumPy or Python number as JSON has it."""
    if isinstance(value, str):
        return value
    return value.item() if isinstance(value, np.bool_ | np.integer) else finite(value)
