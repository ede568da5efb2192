"""The files that people look at when a run is over: figures, a table of its queries, and one page that tells it all.

The page is `run_page.html`, a template, with the run's data in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.dataset import Dataset
from harness.data.files import write_text
from harness.evaluation.scores import Scores
from harness.gates.payoff import Payoff
from harness.pipeline.run_config import RunConfig
from harness.pipeline.steps import Outcome
from harness.reports import figure, run_figures
from harness.reports.gate_view import GateView, axis_of, gate_view, given, view_payoff
from harness.reports.markup import finite
from harness.reports.page import filled
from harness.reports.query_table import query_table
from harness.reports.run_note import LOSSES, facts_of, headline, note

TEMPLATE = Path(__file__).parent / "templates" / "run.html"
TOLD = 12  # measures on the page
LEAST, MOST, TEXTS = 90, 400, 90_000  # characters of a document's text on the page, and of all of them about


TABLE = "queries.json"  # the table of queries, as MLflow shows it


def write(
    folder: Path, name: str, run_id: str | None, config: RunConfig, dataset: Dataset, outcome: Outcome
) -> tuple[dict[str, list[Any]], str]:
    """Write figures and page of the run `name`; its table of queries and its description."""
    payoff = view_payoff(outcome, config, dataset)
    view = gate_view(outcome, config, payoff)
    table = query_table(outcome, dataset, config.objective)
    facts = facts_of(config, dataset, outcome.scores, view)
    if outcome.scores:
        run_figures.overview(outcome.scores, folder / "overview.png")
    if view:
        from harness.reports import gate_figures

        gate_figures.gate(view, folder / "gate.png")
    told: dict[str, Any] = {"title": name, "run_id": run_id, "facts": facts, "notes": dataset.notes}
    told["nouns"] = ["query", "queries"]
    told |= _scored(outcome.scores, outcome.held_out, config.objective)
    told |= {"queries": {"columns": list(table), "data": list(zip(*table.values(), strict=True))}}
    told |= _documents(outcome, dataset, config.top_k)
    told["gate"] = _gate(outcome, config, payoff, view)
    write_text(folder / "report.html", filled(TEMPLATE, told))
    names = [*(path.name for path in folder.iterdir()), TABLE]
    scores, held_out = outcome.scores, outcome.held_out
    return table, note(facts, scores, held_out, config.objective, table, dataset.notes, run_id, names)


def write_scored(folder: Path, scores: Scores, source: Mapping[str, str], objective: str) -> str:
    """Write the figure of predictions made elsewhere; their description. source: where they come from."""
    run_figures.overview(scores, folder / "overview.png")
    names = [path.name for path in folder.iterdir()]
    return note(list(source.items()), scores, None, objective, None, (), None, names)


def _scored(scores: Scores | None, held_out: Scores | None, objective: str) -> dict[str, Any]:
    """What the page says of the numbers; without labels nothing."""
    found: dict[str, Any] = {"objective": objective, "colours": figure.COLOURS, "headline": [], "losses": []}
    if scores:
        found["headline"] = [
            {"name": name, "mean": one.mean, "low": finite(one.low), "high": finite(one.high), "n": one.n}
            for name, one in headline(scores, held_out, objective, TOLD)
        ]
        found["losses"] = [{"kind": kind, "value": value, "why": LOSSES[kind]} for kind, value in scores.losses.items()]
    return found


def _documents(outcome: Outcome, dataset: Dataset, top_k: int) -> dict[str, Any]:
    """The first documents of each query before the gate, and the relevant ones that are not among them.

    documents: [id, title, text] each. top: for each query [place in documents, grade or null, score] each; missed: for
    each query [place in documents, grade, rank or null where it was not retrieved] each.
    """
    grades = dataset.qrels.grades if dataset.qrels else {}
    place: dict[str, int] = {}
    top, missed = [], []
    for row, query in enumerate(outcome.queries):
        ranked = outcome.candidates.row(row)
        relevant, rank = grades.get(query.query_id, {}), {doc_id: n for n, (doc_id, _) in enumerate(ranked, start=1)}
        head = ranked[:top_k]
        top.append([[place.setdefault(i, len(place)), relevant.get(i), round(score, 6)] for i, score in head])
        rest = [doc_id for doc_id in relevant if rank.get(doc_id, math.inf) > top_k]
        rest = sorted(rest, key=lambda doc_id: rank.get(doc_id, math.inf))[:top_k]
        missed.append([[place.setdefault(i, len(place)), relevant[i], rank.get(i)] for i in rest])
    cut = min(MOST, max(LEAST, TEXTS // max(len(place), 1)))
    documents = [[i, dataset.by_id[i].title, _start(dataset.by_id[i].text, cut)] for i in place]
    return {"documents": documents, "top": top, "missed": missed}


def _gate(outcome: Outcome, config: RunConfig, payoff: Payoff | None, view: GateView | None) -> dict[str, Any] | None:
    """What the page needs to move the threshold; None where the gate reads no signal.

    kept: whether a query has a say in the counts. shows, withholds: the objective of each query with documents and
    without, null where it does not count. most: documents that it would be shown.
    """
    signal = outcome.decision.signal
    if signal is None or not len(signal):
        return None
    name, levels, thresholds = (view.name, view.levels, view.thresholds) if view else given(outcome, config)
    found = {
        "name": name,
        "levels": levels,
        "thresholds": [_json(value) for value in thresholds],
        "ends": axis_of(signal, thresholds),
        "most": np.minimum(outcome.candidates.lengths, config.top_k).tolist(),
    }
    if view is None or payoff is None:
        return found
    earned = np.full((len(signal), 2), np.nan)
    earned[payoff.rows] = payoff.values[payoff.rows][:, [min(max(levels), config.top_k), 0]]
    of = view.held_out
    return found | {
        "objective": view.objective,
        "public": view.public,
        "learnt": view.learnt,
        "in_use": view.in_use,
        "held_out": [finite(one) for one in (of.mean, of.low, of.high)] if of else None,
        "plateau": [_json(end) for end in view.ranges["plateau"]] if "plateau" in view.ranges else None,
        "shows": [finite(value) for value in earned[:, 0]],
        "withholds": [finite(value) for value in earned[:, 1]],
        "counts": _counts(outcome, view.public),
    }


def _counts(outcome: Outcome, public: bool) -> list[bool]:
    """Whether a query has a say where a threshold is chosen: private labels have none where the public ones choose."""
    scores = outcome.scores
    private = set()
    if public and scores:
        private = {one for one, mine in zip(scores.query_ids, scores.in_public, strict=True) if not mine}
    return [query.query_id not in private for query in outcome.queries]


def _start(text: str, length: int) -> str:
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def _json(value: float) -> float | str:
    """JSON has no infinite numbers."""
    return float(value) if math.isfinite(value) else str(float(value))
