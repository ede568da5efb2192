"""What people see on the terminal, and the per-query table that goes with a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.datasets import Dataset
from harness.metrics import OOF, judge, losses
from harness.pipeline import Outcome
from harness.scores import Scores, Summary

if TYPE_CHECKING:
    from rich.console import Console

SAID = {
    "plateau": "thresholds within one standard error of the best",
    "threshold_interval": "95 % interval of the threshold",
    "objective_interval": "95 % interval of the score on the queries that it was fitted on",
}
DECISIONS = {  # of a gate, by where a query's score is lost
    None: "not labelled",
    "wrongly_returned": "wrongly_returned",
    "wrongly_withheld": "wrongly_withheld",
}
SNIPPET = 90  # characters of a document shown in a list


def emit(style: str, document: Mapping[str, Any], show: Callable[[Console], None]) -> None:
    """One JSON document on standard output, or `show` on a console there."""
    if style == "json":
        json.dump(document, sys.stdout, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
        return
    from rich.console import Console

    show(Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty()))


def show_scores(console: Console, scores: Scores, held_out: Scores | None = None) -> None:
    """Measures with intervals and splits, the losses, and what was left out.

    held_out: the same out of fold, where a gate was fitted on labels; it is what such a run is compared by.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("measure", "left"), ("mean", "right"), ("95 % interval", "right"), ("queries", "right"),
                          ("public", "right"), ("private", "right")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, of in [(name, of) for name in scores.summary for of in (scores, held_out) if of and name in of.summary]:
        summary = of.summary[name]
        table.add_row(
            f"{OOF}{name}" if of is held_out else name, _number(summary.mean), _interval(summary), str(summary.n),
            _number(of.public[name].mean), _number(of.private[name].mean),
        )  # fmt: skip
    console.print(table)
    if held_out:
        console.print(
            f"The gate was fitted on labels of these queries: {OOF}NAME is the score when each query's label had no "
            "part in it. Compare runs by that.",
            style="bold",
        )
    if scores.losses:
        console.print()
        console.print("Where the score is lost (the losses and modified_map@3 add up to 1):", style="bold")
        for name, value in scores.losses.items():
            console.print(f"  {name:<26} {value:.4f}  {'█' * round(40 * value)}".rstrip())
        console.print("With one part perfect, modified_map@3 would be:", style="bold")
        for name, value in scores.ceilings.items():
            console.print(f"  {name:<26} {value:.4f}")
    console.print()
    console.print(_counted(scores))
    notes: dict[str, list[str]] = {}
    for name, summary in scores.summary.items():
        if summary.note:
            notes.setdefault(summary.note, []).append(name)
    for note, names in notes.items():
        console.print(f"{', '.join(names)}: {note}.", style="dim")


def peeked(experiment: str, peeks: int) -> str:
    """What it means that private scores were looked at."""
    return (
        f"Private scores of experiment {experiment!r} have been seen {peeks} time{'s' * (peeks != 1)}. Each look that "
        "decides what is tried next makes them worth less."
    )


def show_gate(console: Console, fitted: Mapping[str, Any]) -> None:
    """What a gate learnt from labels, in a few lines."""
    rule, learnt = fitted["rule"], fitted["learnt_from"]
    read = " ".join(filter(None, rule["features"][0])) if len(rule["features"]) == 1 else "logistic regression"
    console.print()
    console.print(f"Gate, learnt from {learnt['queries']} queries ({learnt['needs_no_retrieval']} need no retrieval):")
    levels = ", ".join(
        f"{level} from {_end(threshold)}" for level, threshold in zip(rule["levels"], rule["thresholds"], strict=False)
    )
    console.print(f"  {read}: documents shown: {levels}; below that none.")
    for name in ("plateau", "threshold_interval", "objective_interval"):
        if name in fitted:
            low, high = map(_end, fitted[name])
            console.print(f"  {SAID[name]}: {low} to {high}")
    for note in fitted["notes"]:
        console.print(f"  Note: {note}.")


def query_table(outcome: Outcome, dataset: Dataset, objective: str) -> dict[str, list[Any]]:
    """column -> values in plain cells, one row a query; None for what is unknown or does not apply.

    decision: the gate's: right, wrongly_returned, wrongly_withheld, not labelled. loss: where its part of
    1 - modified_map@3 is lost, "" where nothing is. Then the objective, and the same out of fold where a gate was
    fitted on labels. signal: what the gate decided by. needs: whether it needs retrieval. kept: by the gate. shown:
    documents returned. first_hit: rank of the first relevant document before the gate, 0 without one. hits: relevant
    ones among the documents returned. documents: those returned, by id and title, a tick before the relevant ones.
    """
    final, scores, signal = outcome.final, outcome.scores, outcome.decision.signal
    ids = [query.query_id for query in outcome.queries]
    place = {query_id: i for i, query_id in enumerate(scores.query_ids)} if scores else {}
    loss, hits = _judged(outcome, dataset, place)

    def cells(values: Any) -> list[Any]:
        """In the order of the queries, from one in the order of the scores."""
        return [None if values is None or i not in place else _plain(values[place[i]]) for i in ids]

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
        "signal": [None] * len(ids) if signal is None else [_plain(value) for value in signal],
        "needs": cells(scores and scores.needs),
        "kept": outcome.decision.keep.tolist(),
        "shown": final.lengths.tolist(),
        "first_hit": [rank if rank is None else int(rank) for rank in first],
        "hits": cells(hits),
    }
    return table | {"documents": [_listed(outcome, dataset, row) for row in range(len(ids))]}


def snippet(text: str) -> str:
    line = " ".join(text[: 20 * SNIPPET].split())
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"


def _judged(outcome: Outcome, dataset: Dataset, scored: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """Of the scored queries: where the score is lost, "" where nothing is, and how many documents returned are hits."""
    if dataset.qrels is None:
        return [], np.zeros(0, int)
    place = {query.query_id: row for row, query in enumerate(outcome.queries)}
    wanted = list(scored)
    final, before = (judge(lists, dataset.qrels, wanted) for lists in (outcome.final, outcome.candidates))
    lost = losses(final, before, outcome.decision.keep[[place[query_id] for query_id in wanted]])
    kinds = np.full(len(wanted), "", dtype=object)
    for kind, values in lost.items():
        kinds[values > 0] = kind
    return kinds.tolist(), final.hits[:, -1].astype(int)


def _listed(outcome: Outcome, dataset: Dataset, row: int) -> str:
    relevant = dataset.qrels.grades.get(outcome.queries[row].query_id, {}) if dataset.qrels else {}
    found = [dataset.by_id[doc_id] for doc_id, _ in outcome.final.row(row)]
    return "\n".join(
        f"{'✓ ' if one.doc_id in relevant else ''}{one.doc_id} {snippet(one.title or one.text)}" for one in found
    )


def _end(value: float | str) -> str:
    return f"{float(value):.4g}"


def _plain(value: Any) -> Any:
    """A cell of a table: None for what is not finite, numbers with six decimals."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    return round(float(value), 6) if np.isfinite(value) else None


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _interval(summary: Summary) -> str:
    return "" if np.isnan(summary.low) else f"{summary.low:.3f} – {summary.high:.3f}"


def _counted(scores: Scores) -> str:
    counts = scores.counts
    text = f"{counts['scored']} labelled queries scored, {counts['needs_no_retrieval']} of them need no retrieval"
    for name in ("unlabelled", "missing", "duplicates"):
        if counts[name]:
            text += f"; {counts[name]} {name}"
    return text + "."
