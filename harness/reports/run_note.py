"""What a run's page says in words: what was run, its numbers first, and which file holds what. In Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.data.dataset import Dataset
from harness.evaluation.measures import OOF
from harness.evaluation.scores import Scores, Summary
from harness.pipeline.run_config import RunConfig
from harness.reports.gate_view import GateView
from harness.reports.markup import bullets, description, grid, interval, marked, result, snippet

# The measures that are told first, in this order, where a run has them; and how many are told in the description.
FIRST = ("modified_map@3", "hit@3", "mrr@3", "ndcg@10", "recall@100", "abstention_precision", "abstention_recall")
TOLD = 8
LOSSES = {
    "wrongly_returned": "needs no retrieval, yet documents were shown",
    "wrongly_withheld": "needs retrieval, yet the gate withheld the documents",
    "not_found": "no relevant document among those retrieved",
    "misranked": "found, but not at the top of the documents shown",
}
FILES = {
    "report.html": "the page of this run: gate, losses, every query; opens without a network",
    "queries.json": "a row a query: signal, decision, hits, score, documents",
    "overview.png": "rank of the first relevant document, and where the score is lost",
    "gate.png": "the score at every threshold of the gate, and the queries that it separates",
    "gate.json": "what the gate learnt from labels",
    "predictions.jsonl": "the submission's rows",
    "scores.csv": "every measure of every query, to the last bit",
    "run.trec": "the ranking before the gate, in TREC's format",
    "config.yaml": "the resolved configuration",
    "requirements.txt": "versions of all installed packages",
}

Facts = list[tuple[str, str]]


def note(
    facts: Facts,
    scores: Scores | None,
    held_out: Scores | None,
    objective: str,
    table: Mapping[str, Sequence[Any]] | None,
    notes: Iterable[str],
    run_id: str | None,
    files: Iterable[str],
) -> str:
    """The description of a run.

    facts: what was run. table: as `report.query_table` makes it; None where the queries are not known. files: names
    of those that the run leaves.
    """
    parts = [_result(scores, held_out, objective) if scores else "No labels: nothing is scored."]
    parts.append(bullets(f"**{marked(name)}**: {marked(words)}" for name, words in facts))
    if scores:
        parts += [_headline(scores, held_out, objective), _losses(scores, table)]
    if scores and table:
        parts.append(_confusion(table))
    parts.append(bullets(map(marked, notes)))
    if run_id and table:
        parts.append(f"Run it again: `harness reproduce run={run_id}`  \nSubmit it: `harness export run={run_id}`")
    return description([*parts, bullets(f"`{name}`: {what}" for name, what in FILES.items() if name in files)])


def facts_of(config: RunConfig, dataset: Dataset, scores: Scores | None, view: GateView | None) -> Facts:
    """What was run: (name, words) each."""
    labelled = "no labels"
    if scores:
        counts = scores.counts
        labelled = f"{counts['scored']:,} labelled ({counts['needs_no_retrieval']:,} need no retrieval)"
    data = f"{dataset.name}: {len(dataset.documents):,} documents, {len(dataset.queries):,} queries, {labelled}"
    found = [("Data", data)] + [(f"Retriever {name}", _part(node)) for name, node in config.retriever.items()]
    if len(config.retriever) > 1:
        found.append(("Fusion", _part(config.fusion)))
    if config.rerank.get("depth"):
        found.append(("Reranker", _part(config.rerank)))
    found.append(("Gate", gate_words(view) if view else _part(config.gate)))
    chosen = ", chosen by the public part" if config.split.select_on == "public" else ""
    return [*found, ("Shown", f"top {config.top_k} of {config.depth}; objective {config.objective}{chosen}")]


def gate_words(view: GateView) -> str:
    """`bm25 top_score: 3 documents from 3.821, below that none; fitted on labels of 110 queries`."""
    if view.thresholds[-1:] == (-math.inf,) and not view.learnt:
        return f"none, every query gets its documents ({view.name} is looked at)"
    steps = [
        f"{level} document{'s' * (level != 1)} {f'from {threshold:.4g}' if threshold > -math.inf else 'for all others'}"
        for level, threshold in zip(view.levels, view.thresholds, strict=False)
        if threshold < math.inf
    ]
    none = ["below that none"] if view.thresholds[-1:] > (-math.inf,) else []
    said = ", ".join([*steps, *none]) if steps else "withholds all" if view.thresholds else "as it decides"
    return f"{view.name}: {said}" + (f"; fitted on labels of {view.counts[0]:,} queries" if view.learnt else "")


def headline(scores: Scores, held_out: Scores | None, objective: str, count: int) -> list[tuple[str, Summary]]:
    """(logged name, numbers) of `count` measures: the objective first, before each the same out of fold if there is."""
    order = [objective, *FIRST, *scores.summary]
    names = [name for name in dict.fromkeys(order) if name in scores.summary and scores.summary[name].n][:count]
    found = []
    for name in names:
        if held_out and name in held_out.summary:
            found.append((f"{OOF}{name}", held_out.summary[name]))
        found.append((name, scores.summary[name]))
    return found


def confusion(table: Mapping[str, Sequence[Any]]) -> dict[tuple[bool, bool], int]:
    """(needs retrieval, is shown documents) -> queries, of the labelled ones.

    As the losses count: one that needs retrieval, is kept by the gate and finds nothing is not withheld.
    """
    wrong = {"wrongly_returned", "wrongly_withheld"}
    rows = zip(table["needs"], table["decision"], strict=True)
    count = Counter((needs, needs != (decision in wrong)) for needs, decision in rows if needs is not None)
    return {(needs, shown): count[needs, shown] for needs in (True, False) for shown in (True, False)}


def _result(scores: Scores, held_out: Scores | None, objective: str) -> str:
    """One line: MLflow folds what follows the first few."""
    shown = headline(scores, held_out, objective, 1)
    if not shown:
        return "Nothing could be scored."
    name, one = shown[0]
    return result(name, one)


def _headline(scores: Scores, held_out: Scores | None, objective: str) -> str:
    rows = []
    for place, (name, one) in enumerate(headline(scores, held_out, objective, TOLD)):
        bold = "**" if place == 0 else ""
        rows.append(
            (f"{bold}{marked(name)}{bold}", f"{bold}{one.mean:.4f}{bold}", interval(one.low, one.high), f"{one.n:,}")
        )
    text = grid(("measure", "mean", "95 % interval", "queries"), rows)
    if held_out:
        text += f"\n\n`{OOF}` is out of fold: each query decided by a gate that had not seen its label."
    return text


def _losses(scores: Scores, table: Mapping[str, Sequence[Any]] | None) -> str:
    counted = Counter(table["loss"]) if table else Counter()
    rows = [
        (f"**{marked(kind)}**", f"{value:.4f}", f"{counted[kind]:,}" if table else "–", LOSSES[kind])
        for kind, value in scores.losses.items()
    ]
    return grid(("lost of modified&#95;map&#64;3", "points", "queries", "why"), rows)


def _confusion(table: Mapping[str, Sequence[Any]]) -> str:
    count = confusion(table)
    rows = [
        (name, f"{count[needs, True]:,}", f"{count[needs, False]:,}")
        for name, needs in (("needs retrieval", True), ("needs none", False))
    ]
    return grid(("gate", "documents shown", "withheld"), rows)


def _part(node: Mapping[str, Any]) -> str:
    """`BM25, k1 1.5, b 0.75, tokenizer Kiwi`: a part of a config in words."""
    words = [str(node["_target_"]).rpartition(".")[2]]
    for key, value in node.items():
        if key in ("_target_", "runtime"):
            continue
        if isinstance(value, Mapping) and "_target_" in value:
            words.append(f"{key} {value['_target_'].rpartition('.')[2]}")
        elif isinstance(value, Mapping):
            words += [f"{key} {name} {one}" for name, one in value.items()]
        elif value not in (None, "", []):
            words.append(f"{key} {snippet(str(value))}")
    return ", ".join(words)
