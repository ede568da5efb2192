"""The HTML page and the table of queries of a finished run, and the page of a scored file of answers or corrections."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from harness.measures.objective import Objective
from harness.measures.scores import Summary
from harness.measures.slices import SliceScore
from harness.reports import figure
from harness.reports.evaluation import LOSSES, Evaluation, shown_losses
from harness.reports.figure import save
from harness.reports.gate_view import GateView, SignalRule, draw_gate, gate_view, given, signal_axis, view_payoff
from harness.reports.markup import (
    TEMPLATES,
    estimated,
    fill_page,
    raw,
    rounded_interval,
    rounded_or_none,
    snippet,
)
from harness.reports.run_figures import overview
from harness.reports.run_note import TABLE, Facts, facts_of, run_note
from harness.statistics.prediction_powered import Estimate
from harness.storage.atomic import write_text
from harness.storage.typed import encoded
from retrievers.base import Ranking

if TYPE_CHECKING:
    from harness.tasks.scored_file import ScoredFile

RUN_TEMPLATE, TASK_TEMPLATE = TEMPLATES / "run.html", TEMPLATES / "task.html"
MEASURES_ON_PAGE = 12
QUERIES = 10_000  # a page shows at most this many queries of a run
LIMIT = 1000  # a page shows at most this many items of a scored file
# Characters of text on the page: the minimum and the maximum per document, and the approximate total.
LEAST, MOST, TEXTS = 90, 400, 90_000
DECISIONS = {  # a query's kind of loss -> the name of the gate's decision; "right" for every other kind
    None: "not labelled",
    "wrongly_returned": "wrongly_returned",
    "wrongly_withheld": "wrongly_withheld",
}


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
    listed = _first(outcome)
    table = query_table(listed, dataset, plan.objective)
    facts = facts_of(plan, dataset, of, view, outcome.fusion)
    notes = (*dataset.notes, *preflight.notes(dataset, outcome.candidates), *_left_out(outcome))
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
        "slices": [measure_row(one.name, one.n, [one.mean], _known(one), one.note) for one in outcome.slices],
        "lost": f"{kind}, all queries" if plan.split.select_on == "public" else kind,
        "queries": {"columns": list(table), "data": list(zip(*table.values(), strict=True))},
        **_documents(listed, dataset, plan.top_k),
        "gate": gate_data(listed, plan, dataset, view, payoff, overrides),
    }
    write_text(folder / "report.html", fill_page(RUN_TEMPLATE, page))
    files = [*(path.name for path in folder.iterdir()), TABLE]
    return table, run_note(facts, scores, True, files, notes, run_id)


def _known(one: SliceScore) -> dict[str, SliceScore]:
    return {one.name: one} if one.mean == one.mean else {}


def _first(outcome: Outcome) -> Outcome:
    """Return the outcome of the first QUERIES queries, with the scores of all queries."""
    decision, rows = outcome.decision, np.arange(min(QUERIES, len(outcome.queries)))
    if len(rows) == len(outcome.queries):
        return outcome
    signal = None if decision.signal is None else decision.signal[rows]
    return replace(
        outcome,
        queries=outcome.queries[:QUERIES],
        candidates=outcome.candidates.take(rows),
        final=outcome.final.take(rows),
        decision=replace(decision, shown=decision.shown[rows], signal=signal),
    )


def _left_out(outcome: Outcome) -> Iterator[str]:
    if (count := len(outcome.queries)) > QUERIES:
        yield f"The page and {TABLE} show the first {QUERIES:,} of {count:,} queries. The other files have all queries."


def write_scored(folder: Path, of: Evaluation, source: Mapping[str, str]) -> str:
    """Draw the scores of a file of predictions. Return a description in Markdown. source: facts about the files."""
    if of.scores:
        overview(of.scores, folder / "overview.png")
    files = [path.name for path in folder.iterdir()]
    return run_note(list(source.items()), of, False, files)


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


def measure_row(
    name: str, n: int, cells: Sequence[float], of: Mapping[str, Summary | SliceScore | Estimate], why: str = ""
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


def query_table(outcome: Outcome, dataset: Dataset, objective: str) -> dict[str, list[Any]]:
    """Return column -> values for JSON, with one row per query and None for unknown values.

    decision: right, wrongly_returned, wrongly_withheld or not labelled.
    loss: the kind of loss of modified_map@3; "" without loss.
    (the objective's name): its in-sample value. If the run learnt from labels, a column of out-of-fold values follows.
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
    found = losses_and_found(outcome, dataset, filter(place.__contains__, ids), final, outcome.decision.keep)

    def cells(values: Any) -> list[Any]:
        """Return one cell per query of the run. values: one per scored query; None if there are no values."""
        return [None if values is None or i not in place else _cell(values[place[i]]) for i in ids]

    lost, hits = zip(*(found.get(i, (None, None)) for i in ids), strict=True) if ids else ((), ())
    first = cells(scores and scores.first_hit)
    table = {
        "query_id": ids,
        "query": [query.text for query in outcome.queries],
        "decision": [DECISIONS.get(kind, "right") for kind in lost],
        "loss": [*lost],
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
        "hits": [*hits],
    }
    return table | {"documents": [_listed(outcome, dataset, row) for row in range(len(ids))]}


def losses_and_found(
    outcome: Outcome, dataset: Dataset, scored: Iterable[str], final: Ranking, keep: np.ndarray
) -> dict[str, tuple[str, int]]:
    """Return query_id -> (kind of loss, "" for none; number of returned relevant documents) for each scored query."""
    if dataset.qrels is None:
        return {}
    place = {query.query_id: row for row, query in enumerate(outcome.queries)}
    wanted = list(scored)
    after, before = (judge_lists(lists, dataset.qrels, wanted) for lists in (final, outcome.candidates))
    lost = losses(after, before, keep[[place[query_id] for query_id in wanted]])
    kinds = np.full(len(wanted), "", dtype=object)
    for kind, values in lost.items():
        kinds[values > 0] = kind
    return dict(zip(wanted, zip(kinds.tolist(), after.hits[:, -1].astype(int).tolist(), strict=True), strict=True))


def _listed(outcome: Outcome, dataset: Dataset, row: int) -> str:
    relevant = dataset.qrels.grades.get(outcome.queries[row].query_id, {}) if dataset.qrels else {}
    returned = [dataset.by_id[doc_id] for doc_id, _ in outcome.final.row(row)]
    return "\n".join(
        f"{'✓ ' if one.doc_id in relevant else ''}{one.doc_id} {snippet(one.title or one.text)}" for one in returned
    )


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    return [tuple(piece) for piece in value] if isinstance(value, Iterable) else rounded_or_none(value)


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
    rows = payoff.rows[payoff.rows < len(earned)]
    earned[rows] = payoff.values[rows][:, [level, 0]]
    kept = np.ones(len(outcome.queries), bool)
    ids = [query.query_id for query in outcome.queries]
    scored = {*scores.query_ids}.intersection(ids)
    lost = losses_and_found(outcome, dataset, scored, outcome.candidates.top(level), kept)
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


# ---- The page of a scored file of answers or corrections


def task_page(scored: ScoredFile, facts: Facts) -> str:
    """Return the page with at most LIMIT items, the worst first. Items without a value come last."""
    names = dict.fromkeys([scored.shown, *scored.summary, *scored.judged.absent])
    data = {
        "title": scored.task.name,
        "facts": facts,
        "nouns": ["item", "items"],
        "ranked_by": first_number(scored.headline, scored.summary, scored.parts["public"]),
        "columns": ["", "public", "private"],
        "measures": [_task_measure(name, scored) for name in names],
        "notes": scored.judged.notes,
        "objective": scored.shown,
        "counts": [(name, float(value)) for name, value in scored.totals.items()],
        "kinds": _kinds(scored),
        "items": _items(scored),
        "total": len(scored.judged.item_ids),
    }
    return fill_page(TASK_TEMPLATE, data)


def _task_measure(name: str, scored: ScoredFile) -> dict[str, Any]:
    none = Summary(np.nan, 0)
    one, absent = scored.summary.get(name, none), scored.judged.absent
    known = name not in absent and one.mean == one.mean
    cells = [one.mean, *(scored.parts[part].get(name, none).mean for part in ("public", "private"))]
    return measure_row(name, one.n, cells, {name: one} if known else {}, absent.get(name, one.note))


def _kinds(scored: ScoredFile) -> dict[str, Any]:
    """Return the measures that have a mean for some kind of item, and the rows of the table of kinds.

    A row is [kind, (number of items, mean) of each measure].
    """
    by_kind = {name: scored.means_by_kind(name) for name in scored.summary}
    known = {name: kinds for name, kinds in by_kind.items() if any(mean == mean for _, mean in kinds.values())}
    rows = [
        [kind, *((n, rounded_or_none(mean)) for n, mean in (kinds[kind] for kinds in known.values()))]
        for kind in (scored.by_kind if known else ())
    ]
    return {"measures": list(known), "rows": rows}


def _items(scored: ScoredFile) -> dict[str, Any]:
    """Return the names of the text columns and of the number columns, and the rows [id, kind, *texts, *numbers].

    The worst items come first. A marked text is a list of pieces [text, mark].
    """
    judged, values, shown = scored.judged, scored.values, scored.shown
    worst = np.argsort(values, kind="stable")[:LIMIT].tolist()
    table: dict[str, Any] = {shown: encoded(values)}
    table |= {name: cells for name, cells in judged.table.items() if name not in ("id", "kind", shown)}
    table = {name: cells for name, cells in table.items() if any(cell is not None for cell in cells)}
    texts = [name for name, cells in table.items() if any(isinstance(cell, str) for cell in cells)]
    numbers = [name for name in table if name not in texts]
    columns: list[Sequence[Any]] = [judged.item_ids, judged.kinds]
    columns += [judged.marked.get(name, table[name]) for name in texts] + [table[name] for name in numbers]
    rows = [[_cell(column[row]) for column in columns] for row in worst]
    return {"texts": texts, "numbers": numbers, "rows": rows}
