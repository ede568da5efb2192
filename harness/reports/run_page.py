"""What a finished run leaves for people: figures, a table of its queries, a page with everything, a description.

The page is the template `run.html` filled with the run's data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.dataset import Dataset
from harness.evaluation import leaks
from harness.pipeline.run_config import RunConfig
from harness.pipeline.steps import Outcome
from harness.reports import figure, run_figures
from harness.reports.gate_page import gate_data
from harness.reports.gate_view import GateView, gate_view, view_payoff
from harness.reports.markup import estimated, finite, raw, snippet
from harness.reports.page import TEMPLATES, filled
from harness.reports.query_table import query_table
from harness.reports.run_note import LOSSES, RunScores, RunSummary, facts_of, note
from harness.storage.atomic import write_text

TEMPLATE = TEMPLATES / "run.html"
TABLE = "queries.json"  # the name under which the table of queries is logged
MEASURES_ON_PAGE = 12
# Characters of one document's text on the page: at least, at most; and of all texts together, roughly.
LEAST, MOST, TEXTS = 90, 400, 90_000


@dataclass(frozen=True)
class RunReport:
    """What the record of a run takes from its report.

    table: column -> values, as `query_table` makes it.
    note: the description, in Markdown.
    """

    table: dict[str, list[Any]]
    note: str


@dataclass(frozen=True)
class PageDocuments:
    """The first documents of each query before the gate, and the relevant ones that are not among them.

    documents: one [id, title, text] per document.
    top: for each query a list of [position in documents, grade or null, score].
    missed: for each query a list of [position in documents, grade, rank or null where it was not retrieved].
    """

    documents: list[list[Any]]
    top: list[list[list[Any]]]
    missed: list[list[list[Any]]]


def write(
    folder: Path,
    name: str,
    run_id: str | None,
    config: RunConfig,
    dataset: Dataset,
    outcome: Outcome,
    overrides: Sequence[str] | None = None,
) -> RunReport:
    """Write the figures and the page of the run `name` into a folder.

    overrides: of the command that made it; None if they are unknown.
    """
    view = gate_view(outcome, config, view_payoff(outcome, config, dataset))
    _write_figures(folder, outcome, view)
    table = query_table(outcome, dataset, config.objective)
    facts = facts_of(config, dataset, outcome.scores, view, outcome.fusion)
    run = RunSummary(facts, (*dataset.notes, *leaks.notes(dataset, outcome.candidates)), run_id)
    scores = RunScores(outcome.scores, outcome.held_out, config.objective, outcome.objective)
    documents = _documents(outcome, dataset, config.top_k)
    page = {
        "title": name,
        "run_id": run_id,
        "facts": run.facts,
        "notes": run.notes,
        "nouns": ["query", "queries"],
        "objective": config.objective,
        "colours": figure.COLOURS,
        "ranked_by": _ranked_by(outcome),
        "headline": _headline(scores),
        "losses": _losses(scores),
        "lost": _lost_of(scores),
        "queries": {"columns": list(table), "data": list(zip(*table.values(), strict=True))},
        "documents": documents.documents,
        "top": documents.top,
        "missed": documents.missed,
        "gate": gate_data(outcome, config, dataset, view, overrides),
    }
    write_text(folder / "report.html", filled(TEMPLATE, page))
    files = [*(path.name for path in folder.iterdir()), TABLE]
    return RunReport(table, note(run, scores, table, files))


def write_scored(folder: Path, scores: RunScores, source: Mapping[str, str]) -> str:
    """Write the figure of predictions made elsewhere; return their description.

    source: name -> text, where the predictions come from.
    """
    if scores.overall:
        run_figures.overview(scores.overall, folder / "overview.png")
    files = [path.name for path in folder.iterdir()]
    return note(RunSummary(list(source.items())), scores, None, files)


def _write_figures(folder: Path, outcome: Outcome, view: GateView | None) -> None:
    if outcome.scores:
        run_figures.overview(outcome.scores, folder / "overview.png", outcome.held_out)
    if view:
        from harness.reports import gate_figures

        gate_figures.gate(view, folder / "gate.png")


def _headline(scores: RunScores) -> list[dict[str, Any]]:
    """The measures; where labels come partly from a model, the estimates, with the raw means beside them."""
    found = []
    for name, one in scores.headline(MEASURES_ON_PAGE):
        estimate = scores.estimate(name)
        shown, mean = estimate or one, one.mean if estimate is None else estimate.value
        ends = {"mean": finite(mean), "low": finite(shown.low), "high": finite(shown.high)}
        found.append({"name": name, "n": one.n} | ends | ({} if estimate is None else {"raw": finite(one.mean)}))
    return found


def _ranked_by(outcome: Outcome) -> dict[str, Any] | None:
    """What ranks the run, and over how many queries; None where it has no value."""
    one, scores = outcome.objective, outcome.scores
    if one is None or scores is None:
        return None
    n = (scores.public if one.select_on == "public" else scores.summary)[one.name].n
    ends: dict[str, Any] = {"mean": finite(one.value), "low": finite(one.low), "high": finite(one.high)}
    if found := one.estimate:
        ends = {"mean": finite(found.value), "low": finite(found.low), "high": finite(found.high)}
        ends |= {"estimated": estimated(found, one.title), "raw": raw(found, one.value)}
    return {"name": one.name, "kind": one.kind, "n": n} | ends


def _lost_of(scores: RunScores) -> str:
    """What the losses rest on; they are never of the public part alone."""
    kind = "out of fold" if scores.held_out else "in sample"
    return f"{kind}, all queries" if scores.ranked_by and scores.ranked_by.select_on == "public" else kind


def _losses(scores: RunScores) -> list[dict[str, Any]]:
    return [{"kind": kind, "value": value, "why": LOSSES[kind]} for kind, value in scores.lost.items()]


def _documents(outcome: Outcome, dataset: Dataset, top_k: int) -> PageDocuments:
    grades = dataset.qrels.grades if dataset.qrels else {}
    place: dict[str, int] = {}  # doc_id -> position in the page's documents
    top, missed = [], []
    for row, query in enumerate(outcome.queries):
        ranked = outcome.candidates.row(row)
        relevant, rank = grades.get(query.query_id, {}), {doc_id: n for n, (doc_id, _) in enumerate(ranked, start=1)}
        head = ranked[:top_k]
        top.append([[place.setdefault(i, len(place)), relevant.get(i), round(score, 6)] for i, score in head])
        rest = [doc_id for doc_id in relevant if rank.get(doc_id, math.inf) > top_k]
        rest = sorted(rest, key=lambda doc_id: rank.get(doc_id, math.inf))[:top_k]
        missed.append([[place.setdefault(i, len(place)), relevant[i], rank.get(i)] for i in rest])
    length = min(MOST, max(LEAST, TEXTS // max(len(place), 1)))
    documents = [[i, dataset.by_id[i].title, snippet(dataset.by_id[i].text, length)] for i in place]
    return PageDocuments(documents, top, missed)
