"""Make the HTML page, the figures, the table of queries and the Markdown description of a finished run."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.schema import Node
from harness.config.text import counted, runnable, short_id
from harness.data.dataset import Dataset
from harness.experiment import preflight
from harness.experiment.plan import Plan
from harness.experiment.steps import Outcome
from harness.gates.payoff import Payoff
from harness.gates.rule import json_number
from harness.gates.signals import signal_spec
from harness.measures.judged import judge_lists
from harness.measures.measures import OOF, losses
from harness.measures.objective import Objective
from harness.measures.scores import Scores, Summary
from harness.reports import figure
from harness.reports.evaluation import LOSSES, Evaluation, shown_losses
from harness.reports.figure import COLOURS, WIDTH, new_figure, save
from harness.reports.gate_view import GateView, SignalRule, draw_gate, gate_view, given, signal_axis, view_payoff
from harness.reports.markup import (
    TEMPLATES,
    bullets,
    estimated,
    fill_page,
    grid,
    interval,
    levels_text,
    marked,
    number,
    raw,
    result,
    rounded_interval,
    rounded_or_none,
    snippet,
)
from harness.reports.terminal import checked_notes
from harness.statistics.prediction_powered import Estimate
from harness.storage.atomic import write_text
from retrievers.base import Ranking

BINS = ((1, 1, "1"), (2, 2, "2"), (3, 3, "3"), (4, 10, "4–10"), (11, None, "11+"))
TEMPLATE = TEMPLATES / "run.html"
TABLE = "queries.json"  # the logged table of queries
MEASURES_ON_PAGE = 12
# Characters of text on the page: the minimum and the maximum per document, and the approximate total.
LEAST, MOST, TEXTS = 90, 400, 90_000
DECISIONS = {  # a query's kind of loss -> the name of the gate's decision; "right" for every other kind
    None: "not labelled",
    "wrongly_returned": "wrongly_returned",
    "wrongly_withheld": "wrongly_withheld",
}

MEASURES_IN_NOTE = 8

Facts = Sequence[tuple[str, str]]
Table = Mapping[str, Sequence[Any]]
REPORT = "report.html"
FILES = {
    REPORT: "the page of this run, with measures and queries (for a text task, the worst items); it needs no network",
    "queries.json": "one row per query: signal, decision, hits, score and documents",
    "items.json": "the worst items, one row each",
    "overview.png": "rank of the first relevant document, and where the score is lost",
    "gate.png": "the score at every threshold of the gate, and the signal of each kind of query",
    "measures.png": "the measures with their intervals, and the objective by kind of item",
    "gate.json": "the rule that the gate learned from labels",
    "fusion.json": "the rule that the fusion learned from labels, and its alternatives",
    "predictions": "the predictions, to be submitted",  # with any suffix
    "metrics.json": "every number of this run",
    "scores.csv": "every measure for every query, at full precision",
    "checked.csv": "every measure by people's labels and by the model's labels; estimates are computed from these",
    "items.csv": "the texts and measures of every item",
    "tallies.csv": "the counts of every item, by which runs are compared",
    "run.trec": "the ranking before the gate, in TREC format",
    "config.yaml": "the resolved configuration",
    "requirements.txt": "versions of all installed packages",
}


def overview(scores: Scores, file: Path, held_out: Scores | None = None) -> None:
    """Draw a histogram of the first relevant document's rank before the gate, and the score with its losses."""
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
    """Write a run's page and figures into a folder. Return (the columns of `query_table`, the Markdown description)."""
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
    """Draw the scores of predictions from a file. Return a description in Markdown. source: facts about the files."""
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
    """Return each query's first documents before the gate, and its relevant documents that are not among them.

    documents: [id, title, text] of each document. `top` and `missed` refer to a document by its position in this list.
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
        """Return one cell per query of the run. values: one per scored query; None if there are no values."""
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
    """Return the kind of loss ("" for none) and the number of returned relevant documents for each scored query."""
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
    lost, hits: the kind of loss and the number of relevant documents if documents are shown; null without labels.
    counts: whether the query is counted. With select_on=public, private queries are not counted.
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
        "held_out": held_out and [*map(rounded_or_none, (held_out.mean, held_out.low, held_out.high))],
        "plateau": [json_number(end) for end in view.ranges["plateau"]] if "plateau" in view.ranges else None,
        **_by_query(outcome, dataset, payoff, level, view.public),
    }


def _by_query(outcome: Outcome, dataset: Dataset, payoff: Payoff, level: int, public: bool) -> dict[str, list[Any]]:
    """Return the keys of `gate_data` that need labels. An open gate shows the first `level` documents of a query."""
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
    """Return the `command` of `gate_data`. If the overrides are unknown, return only the words that set the gate."""
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


# ---- The description of a run, and parts that the pages of text tasks also use


def measure_row(
    name: str, n: int, cells: Sequence[float], of: Mapping[str, Summary | Estimate], why: str = ""
) -> dict[str, Any]:
    """Return a row of the page's table of measures.

    cells: a value for each of the page's `columns`; NaN for an empty cell.
    of: logged name -> the value to draw with its interval; {} if the measure is absent.
    why: the reason for a missing value or interval.
    """
    values = [(logged, one, one.value if isinstance(one, Estimate) else one.mean) for logged, one in of.items()]
    marks = [{"name": logged, "n": n} | rounded_interval(value, one.low, one.high) for logged, one, value in values]
    return {"name": name, "n": n, "cells": [*map(rounded_or_none, cells)], "marks": marks, "why": why}


def first_number(
    one: Objective | None, whole: Mapping[str, Summary], public: Mapping[str, Summary]
) -> dict[str, Any] | None:
    """Return the score at the top of a page, or None. whole, public: measures over all and over public queries."""
    if one is None:
        return None
    about = {"name": one.name, "kind": one.kind, "n": (public if one.select_on == "public" else whole)[one.name].n}
    if found := one.estimate:
        said = {"estimated": estimated(found, one.title), "raw": raw(found, one.value)}
        return about | rounded_interval(found.value, found.low, found.high) | said
    return about | rounded_interval(one.value, one.low, one.high)


def scored_note(first: str, facts: Facts, found: Iterable[str], notes: Sequence[str], files: Iterable[str]) -> str:
    """Return the description of a run.

    first: the result in one line. MLflow shows only the first lines until the text is unfolded.
    found: tables and sentences about the result.
    files: the names of the run's files. The name of the HTML page becomes a link.
    """
    left = {"predictions" if name.startswith("predictions.") else name: name for name in files}
    others = [f"`{left[name]}`: {text}" for name, text in FILES.items() if name in left and name != REPORT]
    parts = [
        first,
        f"[{REPORT}]({REPORT}): {FILES[REPORT]}" if REPORT in left else "",
        bullets(f"**{marked(name)}**: {marked(text)}" for name, text in facts),
        *found,
        bullets(map(marked, notes)),
        bullets(others),
    ]
    return "\n\n".join(filter(None, parts))


def run_note(
    facts: Facts,
    of: Evaluation,
    table: Table | None,
    files: Iterable[str],
    notes: Sequence[str] = (),
    run_id: str | None = None,
) -> str:
    """Return the description of a run.

    facts: see `facts_of`. table: see `query_table`; None if the queries are unknown. files: see `scored_note`.
    notes: sentences about the data. run_id: None if the run is not logged.
    """
    found = []
    if of.scores:
        found = [_headline(of), _losses(of, table), _confusion(table) if table else ""]
    if run_id and table:
        run_id = short_id(run_id)
        found.append(f"Run it again: `harness reproduce run={run_id}`  \nSubmit it: `harness export run={run_id}`")
    unknown = "The objective has no value." if of.scores else "No labels: nothing is scored."
    first = result(of.objective) if of.objective else unknown
    return scored_note(first, facts, found, notes, files)


def facts_of(
    plan: Plan,
    dataset: Dataset,
    scores: Scores | None,
    view: GateView | None,
    fusion: Mapping[str, Any] | None = None,
) -> Facts:
    """Return (name, text) for each part of a run. fusion: the content of `fusion.json`; None if nothing was learnt."""
    labelled = "no labels"
    if scores:
        counts = scores.counts
        labelled = f"{counts['scored']:,} labelled ({counts['needs_no_retrieval']:,} need no retrieval)"
    sizes = f"{counted(len(dataset.documents), 'document')}, {counted(len(dataset.queries), 'query')}"
    data = f"{dataset.name}: {sizes}, {labelled}"
    facts = [("Data", data)] + [(f"Retriever {name}", _component(node)) for name, node in plan.retriever.items()]
    if len(plan.retriever) > 1:
        said = _component(plan.fusion)
        if fusion:
            terms = [f"{one['weight']:.4g} {one['ranking']} {one['feature']}" for one in fusion["rule"]["features"]]
            learnt = counted(fusion["learnt_from"]["queries"], "query")
            said = f"{fusion['chosen']}: {', '.join(terms)}; fitted on labels of {learnt}"
        facts.append(("Fusion", said))
    if plan.rerank.get("depth"):
        facts.append(("Reranker", _component(plan.rerank)))
    facts.append(("Gate", _gate_text(view) if view else _component(plan.gate)))
    selection = ", selected on the public part" if plan.split.select_on == "public" else ""
    return [*facts, ("Shown", f"top {plan.top_k} of {plan.depth}; objective {plan.objective}{selection}")]


def _gate_text(view: GateView) -> str:
    """Return e.g. `bm25 top_score: 3 documents from 3.821, below that none; fitted on labels of 110 queries`."""
    if view.thresholds[-1:] == (-math.inf,) and not view.learnt:
        return f"no gate: every query gets its documents (the signal shown is {view.name})"
    rule = levels_text(view.levels, view.thresholds) if view.thresholds else "no threshold on the signal"
    return f"{view.name}: {rule}" + (f"; fitted on labels of {counted(view.counts[0], 'query')}" if view.learnt else "")


def _headline(of: Evaluation) -> str:
    assert of.scores is not None
    rows = []
    for place, (name, summary, found) in enumerate(of.headline(MEASURES_IN_NOTE)):
        bold = "**" if place == 0 else ""
        shown, mean = found or summary, [number(summary.mean)] if found else []
        value = number(found.value if found else summary.mean)
        ends = interval(shown.low, shown.high)
        rows.append((f"{bold}{marked(name)}{bold}", f"{bold}{value}{bold}", ends, *mean, f"{summary.n:,}"))
    header = ("estimate", "95 % interval", "raw mean") if of.scores.checked else ("mean", "95 % interval")
    text = grid(("measure", *header, "queries"), rows)
    if said := checked_notes(of.scores):
        text += f"\n\n{' '.join(map(marked, said))}"
    if of.held_out:
        text += f"\n\n`{OOF}` marks out-of-fold scores: nothing was learnt from the label of the query itself."
    return text


def _losses(of: Evaluation, table: Table | None) -> str:
    queries = Counter(table["loss"]) if table else Counter()
    rows = [
        (f"**{marked(kind)}**", f"{value:.4f}", f"{queries[kind]:,}" if table else "–", LOSSES[kind])
        for kind, value in shown_losses(of).items()
    ]
    kind = "points, out of fold" if of.held_out else "points"
    return grid(("loss of modified&#95;map&#64;3", kind, "queries", "why"), rows) if rows else ""


def _confusion(table: Table) -> str:
    """Count the labelled queries by their need for retrieval and by whether they pass the gate ("documents shown")."""
    wrong = {"wrongly_returned", "wrongly_withheld"}
    cells = zip(table["needs"], table["decision"], strict=True)
    count = Counter((needs, needs != (decision in wrong)) for needs, decision in cells if needs is not None)
    rows = [
        (name, f"{count[needs, True]:,}", f"{count[needs, False]:,}")
        for name, needs in (("needs retrieval", True), ("needs none", False))
    ]
    return grid(("gate", "documents shown", "withheld"), rows)


def _component(node: Node) -> str:
    words = [str(node["_target_"]).rpartition(".")[2]]
    for key, value in node.items():
        if key in ("_target_", "runtime"):
            continue
        if isinstance(value, Mapping) and "_target_" in value:
            words.append(f"{key} {value['_target_'].rpartition('.')[2]}")
        elif isinstance(value, Mapping):
            words += [f"{key} {name} {item}" for name, item in value.items()]
        elif value not in (None, "", []):
            words.append(f"{key} {snippet(str(value))}")
    return ", ".join(words)
