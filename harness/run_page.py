"""The files that people look at when a run is over: figures, a table of its queries, and one page that tells it all.

The page is `run_page.html`, a template, with the run's data in it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness import plots
from harness.calibrate import Payoff
from harness.datasets import Dataset
from harness.gate_view import GateView, axis_of, gate_view, given, payoff_of
from harness.html_page import filled, finite
from harness.pipeline import Outcome
from harness.predictions import write_text
from harness.report import query_table
from harness.run_note import LOSSES, facts_of, headline, note
from harness.scores import Scores
from harness.tracking import RunRecord

TEMPLATE = Path(__file__).with_name("run_page.html")
NOTE = "mlflow.note.content"  # what MLflow shows at the top of a run's page
TOLD = 12  # measures on the page
LEAST, MOST, TEXTS = 90, 400, 90_000  # characters of a document's text on the page, and of all of them about


def write(
    folder: Path, record: RunRecord, run_id: str | None, config: Mapping[str, Any], dataset: Dataset, outcome: Outcome
) -> None:
    """Write figures, page and installed versions, and put the table of queries and the description into the record."""
    payoff = payoff_of(outcome, config, dataset)
    view = gate_view(outcome, config, payoff)
    table = query_table(outcome, dataset, config["objective"])
    facts = facts_of(config, dataset, outcome.scores, view)
    if outcome.scores:
        plots.overview(outcome.scores, folder / "overview.png")
    if view:
        from harness import gate_plots

        gate_plots.gate(view, folder / "gate.png")
    told: dict[str, Any] = {"title": record.name, "run_id": run_id, "facts": facts, "notes": dataset.notes}
    told["nouns"] = ["query", "queries"]
    told |= _scored(outcome.scores, outcome.held_out, config["objective"])
    told |= {"queries": {"columns": list(table), "data": list(zip(*table.values(), strict=True))}}
    told |= _documents(outcome, dataset, config["top_k"])
    told["gate"] = _gate(outcome, config, payoff, view)
    write_text(folder / "report.html", filled(TEMPLATE, told))
    write_text(folder / "requirements.txt", requirements())
    record.tables["queries.json"] = table
    names = [path.name for path in folder.iterdir()] + list(record.tables)
    scores, held_out = outcome.scores, outcome.held_out
    record.found[NOTE] = note(facts, scores, held_out, config["objective"], table, dataset.notes, run_id, names)


def write_scored(
    folder: Path, record: RunRecord, scores: Scores, source: Mapping[str, str], config: Mapping[str, Any]
) -> None:
    """What can be told of predictions made elsewhere: figure, versions, description. source: where they are from."""
    plots.overview(scores, folder / "overview.png")
    write_text(folder / "requirements.txt", requirements())
    names = [path.name for path in folder.iterdir()]
    record.found[NOTE] = note(list(source.items()), scores, None, config["objective"], None, (), None, names)


@functools.cache
def requirements() -> str:
    """`name==version` of every installed distribution, a line each; the first on the path where there are several."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        head = (one.read_text("METADATA") or one.read_text("PKG-INFO") or "").partition("\n\n")[0]
        fields = dict(re.findall(r"^(Name|Version): *(\S+)", head, re.MULTILINE))
        if len(fields) == 2:
            found.setdefault(fields["Name"], fields["Version"])
    return "".join(f"{name}=={found[name]}\n" for name in sorted(found, key=str.lower))


def _scored(scores: Scores | None, held_out: Scores | None, objective: str) -> dict[str, Any]:
    """What the page says of the numbers; without labels nothing."""
    found: dict[str, Any] = {"objective": objective, "colours": plots.COLOURS, "headline": [], "losses": []}
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


def _gate(
    outcome: Outcome, config: Mapping[str, Any], payoff: Payoff | None, view: GateView | None
) -> dict[str, Any] | None:
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
        "most": np.minimum(outcome.candidates.lengths, config["top_k"]).tolist(),
    }
    if view is None or payoff is None:
        return found
    earned = np.full((len(signal), 2), np.nan)
    earned[payoff.rows] = payoff.values[payoff.rows][:, [min(max(levels), config["top_k"]), 0]]
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
