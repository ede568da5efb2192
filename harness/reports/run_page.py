"""The figures, the table of queries, the page and the description of a finished run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.text import runnable
from harness.data.dataset import Dataset
from harness.experiment import preflight
from harness.experiment.plan import Plan
from harness.experiment.steps import Outcome
from harness.gates.payoff import Payoff
from harness.gates.rule import json_number
from harness.gates.signals import signal_spec
from harness.measures.judged import judge_lists
from harness.measures.measures import OOF, losses
from harness.measures.scores import Scores, Summary
from harness.reports import figure
from harness.reports.evaluation import LOSSES, Evaluation, shown_losses
from harness.reports.figure import COLOURS, WIDTH, new_figure, save
from harness.reports.gate_view import GateView, SignalRule, draw_gate, gate_view, given, signal_axis, view_payoff
from harness.reports.markup import TEMPLATES, fill_page, rounded_or_none, snippet
from harness.reports.run_note import facts_of, first_number, measure_row, run_note
from harness.statistics.prediction_powered import Estimate
from harness.storage.atomic import write_text
from retrievers.base import Ranking

BINS = ((1, 1, "1"), (2, 2, "2"), (3, 3, "3"), (4, 10, "4–10"), (11, None, "11+"))
TEMPLATE = TEMPLATES / "run.html"
TABLE = "queries.json"  # the logged table of queries
MEASURES_ON_PAGE = 12
# Characters on the page: the fewest and the most of one document's text, and roughly the sum over all texts.
LEAST, MOST, TEXTS = 90, 400, 90_000
DECISIONS = {  # the loss of a query -> the gate's decision; "right" for every other loss
    None: "not labelled",
    "wrongly_returned": "wrongly_returned",
    "wrongly_withheld": "wrongly_withheld",
}


def overview(scores: Scores, file: Path, held_out: Scores | None = None) -> None:
    """Draw the ranks of the first relevant documents before the gate, and the score with its losses."""
    figure = new_figure(WIDTH, 3.4, constrained=False)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(left=0.07, right=0.99, top=0.9, bottom=0.15, wspace=0.15)

    hits = scores.first_hit[np.isfinite(scores.first_hit)]
    counts = [int(((hits >= low) & (hits <= (high or np.inf))).sum()) for low, high, _ in BINS]
    labels = [label for *_, label in BINS]
    bars = left.bar([*labels, "none"], [*counts, int((hits == 0).sum())], color="#2e5eaa")
    bars[-1].set_color(COLOURS["not_found"])
    left.bar_label(bars, fontsize=8)
    left.set(title="Rank of the first relevant document", xlabel="rank", ylabel="queries")

    lost = (held_out or scores).losses
    parts = {"modified_map@3": 1 - sum(lost[name] for name in COLOURS if name in lost)}
    parts |= {name: lost[name] for name in COLOURS if name in lost}
    below = 0.0
    for name, value in parts.items():
        right.bar(["run"], [value], bottom=below, width=0.5, color=COLOURS[name], label=f"{name} {value:.3f}")
        below += value
    right.set(title=f"Score and losses{', out of fold' if held_out else ''}", ylim=(0, 1), xlim=(-0.5, 2.2))
    right.legend(loc="center right", fontsize=8, frameon=False, reverse=True)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, file)


def write_run_page(
    folder: Path,
    name: str,
    run_id: str | None,
    plan: Plan,
    dataset: Dataset,
    outcome: Outcome,
    overrides: Sequence[str] | None = None,
) -> tuple[dict[str, list[Any]], str]:
    """Write the figures and the page of the run `name` into a folder. Return (its `query_table`, its description)."""
    of, payoff = outcome.scores, view_payoff(outcome, plan, dataset)
    view = gate_view(outcome, plan, payoff)
    if of:
        overview(of, folder / "overview.png", outcome.held_out)
    if view:
        save(draw_gate(view), folder / "gate.png")
    table = query_table(outcome, dataset, plan.objective)
    facts = facts_of(plan, dataset, of, view, outcome.fusion)
    notes = (*dataset.notes, *preflight.notes(dataset, outcome.candidates))
    kind = "out of fold" if outcome.held_out else "in sample"
    scores = Evaluation(of, outcome.held_out, outcome.objective)
    page = {
        "title": name,
        "run_id": run_id,
        "facts": facts,
        "nouns": ["query", "queries"],
        "ranked_by": of and first_number(outcome.objective, of.summary, of.public),
        **_measures(scores),
        "notes": notes,
        "objective": plan.objective,
        "colours": figure.COLOURS,
        "losses": [{"kind": kind, "value": value, "why": LOSSES[kind]} for kind, value in shown_losses(scores).items()],
        "lost": f"{kind}, all queries" if plan.split.select_on == "public" else kind,
        "queries": {"columns": list(table), "data": list(zip(*table.values(), strict=True))},
        **_documents(outcome, dataset, plan.top_k),
        "gate": gate_data(outcome, plan, dataset, view, payoff, overrides),
    }
    write_text(folder / "report.html", fill_page(TEMPLATE, page))
    files = [*(path.name for path in folder.iterdir()), TABLE]
    return table, run_note(facts, scores, table, files, notes, run_id)


def write_scored(folder: Path, of: Evaluation, source: Mapping[str, str]) -> str:
    """Write the figure of predictions made elsewhere and return their description. source: name -> text."""
    if of.scores:
        overview(of.scores, folder / "overview.png")
    files = [path.name for path in folder.iterdir()]
    return run_note(list(source.items()), of, None, files)


def _measures(of: Evaluation) -> dict[str, Any]:
    found: dict[str, dict[str, tuple[Summary, Estimate | None]]] = {}
    for name, summary, estimate in of.headline(MEASURES_ON_PAGE):
        found.setdefault(name.removeprefix(OOF), {})[name] = (summary, estimate)
    held, checked = bool(of.held_out), bool(of.scores and of.scores.checked)
    rows = []
    for name, both in found.items():
        known = {logged: estimate or summary for logged, (summary, estimate) in both.items()}
        row = measure_row(name, both[name][0].n, [], known, both[name][0].note)
        means = {one["name"]: one["mean"] for one in row["marks"]}
        row["cells"] = [means.get(f"{OOF}{name}")] * held + [means[name]]
        row["cells"] += [rounded_or_none(next(iter(both.values()))[0].mean)] * checked
        rows.append(row)
    columns = ["out of fold", "in sample"] if held else ["estimate" if checked else ""]
    return {"columns": columns + ["raw"] * checked, "measures": rows}


def _documents(outcome: Outcome, dataset: Dataset, top_k: int) -> dict[str, list[Any]]:
    """Return the first documents of each query before the gate, and the relevant documents that are not among them.

    documents: [id, title, text] of each document. `top` and `missed` name a document by its place in this list.
    top: a list of [document, grade or null, score] for each query.
    missed: a list of [document, grade, rank or null] for each query.
    """
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
    return {"documents": documents, "top": top, "missed": missed}


# ---- The table of queries, on the page and in MLflow


def query_table(outcome: Outcome, dataset: Dataset, objective: str) -> dict[str, list[Any]]:
    """Return column -> values for JSON, with one row per query and None for unknown values.

    decision: right, wrongly_returned, wrongly_withheld or not labelled.
    loss: the kind of loss of modified_map@3; "" without loss.
    OBJECTIVE: the in-sample value, followed by a column of out-of-fold values if the run learnt from labels.
    needs: whether the query needs retrieval.
    kept: whether the gate returns documents.
    shown: the number of documents returned.
    first_hit: the rank of the first relevant document before the gate; 0 if none was found.
    hits: the number of relevant documents returned.
    documents: the ids and titles of the documents returned, with a tick before each relevant document.
    """
    final, scores, signal = outcome.final, outcome.scores, outcome.decision.signal
    ids = [query.query_id for query in outcome.queries]
    place = {query_id: i for i, query_id in enumerate(scores.query_ids)} if scores else {}
    loss, hits = losses_and_found(outcome, dataset, place, final, outcome.decision.keep)

    def cells(values: Any) -> list[Any]:
        """Return the values in the order of the queries. values: in the order of the scores."""
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


def losses_and_found(
    outcome: Outcome, dataset: Dataset, scored: Iterable[str], final: Ranking, keep: np.ndarray
) -> tuple[list[str], np.ndarray]:
    """Return (kind of loss, "" for none; number of relevant documents returned, int [N]) of N scored queries."""
    if dataset.qrels is None:
        return [], np.zeros(0, int)
    place = {query.query_id: row for row, query in enumerate(outcome.queries)}
    wanted = list(scored)
    after, before = (judge_lists(lists, dataset.qrels, wanted) for lists in (final, outcome.candidates))
    lost = losses(after, before, keep[[place[query_id] for query_id in wanted]])
    kinds = np.full(len(wanted), "", dtype=object)
    for kind, values in lost.items():
        kinds[values > 0] = kind
    return kinds.tolist(), after.hits[:, -1].astype(int)


def _listed(outcome: Outcome, dataset: Dataset, row: int) -> str:
    relevant = dataset.qrels.grades.get(outcome.queries[row].query_id, {}) if dataset.qrels else {}
    returned = [dataset.by_id[doc_id] for doc_id, _ in outcome.final.row(row)]
    return "\n".join(
        f"{'✓ ' if one.doc_id in relevant else ''}{one.doc_id} {snippet(one.title or one.text)}" for one in returned
    )


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return value.item() if isinstance(value, np.bool_ | np.integer) else rounded_or_none(value)


# ---- Data for moving the gate's threshold on the page, and the command that runs with the chosen threshold


def gate_data(
    outcome: Outcome,
    plan: Plan,
    dataset: Dataset,
    view: GateView | None,
    payoff: Payoff | None,
    overrides: Sequence[str] | None,
) -> dict[str, Any] | None:
    """Return the gate as JSON; None if the gate reads no signal. Without a view, the keys that need labels are missing.

    payoff: see `view_payoff`. overrides: the overrides of the run's command; None if unknown.

    Keys of the result:
    command: a command that ends in `gate.threshold=`; None if `gate=score` cannot make the same decisions.

    Keys with one value for each query:
    most: the number of documents that an open gate shows.
    shows, withholds: the objective with and without documents; null if the query does not count.
    lost, hits: the kind of loss and the number of relevant documents with documents shown; null without labels.
    counts: whether the query is counted; private queries are not if the public part selects.
    """
    signal = outcome.decision.signal
    if signal is None or not len(signal):
        return None
    rule = view or given(outcome, plan)
    level = min(max(rule.levels), plan.top_k)
    data: dict[str, Any] = {
        "name": rule.name,
        "levels": rule.levels,
        "thresholds": [json_number(value) for value in rule.thresholds],
        "ends": signal_axis(signal, rule.thresholds),
        "most": np.minimum(outcome.candidates.lengths, level).tolist(),
        "command": _command([*outcome.rankings], rule, overrides) if level == plan.top_k else None,
    }
    if view is None or payoff is None:
        return data
    held_out = view.held_out
    return data | {
        "objective": view.objective,
        "public": view.public,
        "learnt": view.learnt,
        "in_use": view.in_use,
        "held_out": [rounded_or_none(one) for one in (held_out.mean, held_out.low, held_out.high)]
        if held_out
        else None,
        "plateau": [json_number(end) for end in view.ranges["plateau"]] if "plateau" in view.ranges else None,
        **_by_query(outcome, dataset, payoff, level, view.public),
    }


def _by_query(outcome: Outcome, dataset: Dataset, payoff: Payoff, level: int, public: bool) -> dict[str, list[Any]]:
    """Return the keys of `gate_data` that need labels, if queries get their first `level` documents."""
    scores = outcome.scores
    assert scores is not None
    earned = np.full((len(outcome.queries), 2), np.nan)
    earned[payoff.rows] = payoff.values[payoff.rows][:, [level, 0]]
    kept = np.ones(len(outcome.queries), bool)
    kinds, hits = losses_and_found(outcome, dataset, scores.query_ids, outcome.candidates.top(level), kept)
    lost = dict(zip(scores.query_ids, zip(kinds, hits.tolist(), strict=True), strict=True))
    ids = [query.query_id for query in outcome.queries]
    private = {one for one, inside in zip(scores.query_ids, scores.in_public, strict=True) if public and not inside}
    return {
        "counts": [query_id not in private for query_id in ids],
        "shows": [rounded_or_none(value) for value in earned[:, 0]],
        "withholds": [rounded_or_none(value) for value in earned[:, 1]],
        "lost": [lost.get(query_id, (None, None))[0] for query_id in ids],
        "hits": [lost.get(query_id, (None, None))[1] for query_id in ids],
    }


def _command(names: Sequence[str], rule: SignalRule, overrides: Sequence[str] | None) -> str | None:
    """Return the `command` of `gate_data`; only its words about the gate if the overrides are unknown."""
    if rule.single is None:
        return None
    source, signal, k = rule.single
    spec = signal_spec(signal)
    words = ["gate=score", f"gate.signal={signal}"]
    if spec.reads != "query" and len(names) > 1:
        words.append(f"gate.source={source or names[0]}")
    if spec.places:
        words.append(f"gate.k={k}")
    if overrides is not None:
        others = (word for word in overrides if word.lstrip("+~").partition("=")[0].partition(".")[0] != "gate")
        words = ["harness", "run", *others, *words]
    return runnable(shlex.join([*words, "gate.threshold="]))
