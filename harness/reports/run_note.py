"""The description of a run in Markdown, for retrieval runs and for scored files of answers or corrections."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.config.schema import Node
from harness.config.text import counted, short_id
from harness.data.dataset import Dataset
from harness.experiment.plan import Plan
from harness.measures.measures import OOF
from harness.measures.scores import Scores
from harness.reports.evaluation import LOSSES, Evaluation, shown_losses
from harness.reports.gate_view import GateView
from harness.reports.markup import bullets, grid, interval, levels_text, marked, number, result, snippet
from harness.reports.terminal import checked_notes

if TYPE_CHECKING:
    from harness.tasks.scored_file import ScoredFile

MEASURES_IN_NOTE = 8

Facts = Sequence[tuple[str, str]]
REPORT = "report.html"
TABLE = "queries.json"  # the logged table of queries
FILES = {
    REPORT: "the page of this run, with measures and queries (for a text task, the worst items); it needs no network",
    TABLE: "one row per query of the page: signal, decision, hits, score and documents",
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
    "tallies.csv": "the counts of every item; runs are compared by these",
    "run.trec": "the ranking before the gate, in TREC format",
    "config.yaml": "the resolved configuration",
    "requirements.txt": "versions of all installed packages",
}


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
    of_run: bool,
    files: Iterable[str],
    notes: Sequence[str] = (),
    run_id: str | None = None,
) -> str:
    """Return the description of a run.

    facts: see `facts_of`. of_run: False for a scored file. files: see `scored_note`. notes: sentences about the data.
    run_id: None if the run is not logged.
    """
    found = []
    if of.scores:
        found = [_headline(of), _losses(of, of_run), _confusion(of.scores) if of_run else ""]
    if run_id and of_run:
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


def _losses(of: Evaluation, of_run: bool) -> str:
    assert of.scores is not None
    queries = Counter(of.scores.loss or ()) if of_run else Counter()
    rows = [
        (f"**{marked(kind)}**", f"{value:.4f}", f"{queries[kind]:,}" if of_run else "–", LOSSES[kind])
        for kind, value in shown_losses(of).items()
    ]
    kind = "points, out of fold" if of.held_out else "points"
    return grid(("loss of modified&#95;map&#64;3", kind, "queries", "why"), rows) if rows else ""


def _confusion(scores: Scores) -> str:
    """Count the labelled queries by their need for retrieval and by whether they pass the gate ("documents shown")."""
    wrong = {"wrongly_returned", "wrongly_withheld"}
    cells = zip(scores.needs.tolist(), scores.loss or (), strict=True)
    count = Counter((needs, needs != (kind in wrong)) for needs, kind in cells)
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


def task_note(scored: ScoredFile, facts: Facts, files: Iterable[str]) -> str:
    """Return the description of a run in Markdown. facts, files: see `scored_note`."""
    order = sorted(scored.summary, key=lambda name: name != scored.shown)
    public, private = (scored.parts[part] for part in ("public", "private"))
    rows = []
    for name in order:
        if (one := scored.summary[name]).mean == one.mean:
            parts = [number(part[name].mean if name in part else None) for part in (public, private)]
            rows.append((marked(name), number(one.mean), interval(one.low, one.high), *parts, f"{one.n:,}"))
    found = [
        grid(("measure", "value", "95 % interval", "public", "private", "items"), rows) if rows else "",
        bullets(f"**{marked(name)}** is absent: {marked(why)}" for name, why in scored.judged.absent.items()),
        ", ".join(f"{marked(name)} {value:,.10g}" for name, value in scored.totals.items()),
    ]
    first = result(scored.headline) if scored.headline else "Nothing could be scored."
    return scored_note(first, facts, found, scored.judged.notes, files)
