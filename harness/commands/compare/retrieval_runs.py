"""What a comparison says: runs on the same queries -> one JSON document of differences, tests, splits and changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.files import json_lines
from harness.data.predictions import read_predictions
from harness.evaluation.leaderboard import leaderboards
from harness.evaluation.measures import OOF, Family, parse
from harness.evaluation.score_table import Table
from harness.evaluation.significance import Difference, differences
from harness.reports.markup import snippet
from harness.tasks.statistics import Gap
from harness.tracking.logged_run import load_unchanged, read_config
from harness.tracking.tracker import LoggedRun
from retrievers.base import BadInput, did_you_mean

CHANGED = 10  # queries shown of each pair
SHOWN = 3  # documents shown of each list
ALPHA = 0.05  # up to this p two runs are told apart
TESTED = ("p", "p_holm", "p_t", "exact")  # what belongs to the tests of a Difference


@dataclass(frozen=True, eq=False)
class Compared:
    """A run as it is compared. label: its name in tables and pictures. predictions, config: its files."""

    label: str
    run: LoggedRun
    table: Table
    predictions: Path
    config: Path

    @property
    def values(self) -> dict[str, np.ndarray]:
        """measure -> float64 [Q]: out of fold, and nothing else, where the run's gate was fitted on the labels."""
        return self.table.oof or self.table.values

    @property
    def losses(self) -> dict[str, float]:
        """The parts of 1 - modified_map@3, out of fold as the values."""
        prefix = f"{OOF if self.table.oof else ''}loss/"
        return {k.removeprefix(prefix): v for k, v in sorted(self.run.metrics.items()) if k.startswith(prefix)}

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """query_id -> the row of the predictions in the contest's layout; empty for a TREC run."""
        if not self.predictions.read_text("utf-8-sig").lstrip().startswith("{"):
            return {}
        return {str(row["eval_id"]): row for _, row in json_lines(self.predictions)}

    @cached_property
    def lists(self) -> dict[str, list[str]]:
        """query_id -> its first documents."""
        found = read_predictions(self.predictions)
        rows = zip(found.query_ids, found.docs[:, :SHOWN].tolist(), strict=True)
        return {query_id: [found.doc_ids[doc] for doc in docs if doc >= 0] for query_id, docs in rows}


def comparison(runs: Sequence[Compared], config: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison of runs whose tables have the same queries in the same order.

    config: metric, seed, resamples. Raises BadInput where not every run has the metric by query.
    """
    names, notes = _measures(runs, config["metric"])
    values = np.stack([[run.values[name] for name in names] for run in runs])
    found = differences(values, config["seed"], config["resamples"])
    at = names.index(config["metric"])
    verdicts, differs, tests, splits, changed = [], [], [], [], []
    parts, some_notes = _parts(runs)
    notes += some_notes
    for (first, second), measured in found.items():
        pair = {"a": runs[first].label, "b": runs[second].label}
        verdicts.append(verdict(pair["a"], pair["b"], measured[at], config["metric"], len(found)))
        rows = values[first] - values[second]
        for name, one, row in zip(names, measured, rows, strict=True):
            numbers = _plain(asdict(one))
            key = pair | {"measure": name}
            tests.append(key | {name: numbers.pop(name) for name in TESTED} | {"pairs": len(found)})
            differs.append(key | numbers)
            splits += [key | {"part": part, **_mean(row[inside])} for part, inside in parts.items()]
        changed += _changed(runs[first], runs[second], values[first, at], values[second, at])
    notes += _add_texts(changed, runs)
    boards: list[dict[str, Any]] = [{} for _ in runs]
    shifts = None
    if "public" in parts:
        labels, table = [run.label for run in runs], runs[0].table
        asked = (table.public, 2 * table.needs + table.multi_turn, labels, config["metric"], config["seed"])
        boards, shifts, said = leaderboards(partial(_masked_means, values[:, at]), *asked)
        notes += said
    return {
        "metric": config["metric"],
        "queries": values.shape[2],
        "verdicts": verdicts,
        "notes": notes,
        "runs": [_described(run, names) | board for run, board in zip(runs, boards, strict=True)],
        "differences": differs,
        "tests": tests,
        "splits": splits,
        "changed": changed,
        "shake_up": shifts,
    }


def verdict(a: str, b: str, found: Difference | Gap, metric: str, pairs: int, items: str = "queries") -> str:
    """One sentence for people: which of two runs is better by the metric, or that it cannot be told."""
    if found.n < 2:
        return f"{a} and {b} cannot be told apart: {metric} applies to {found.n} of the {items}."
    if found.wins + found.losses == 0:
        return f"{a} and {b} have the same {metric} on each of {found.n} {items}."
    p = f"p {'< 0.001' if found.p_holm < 0.001 else f'= {found.p_holm:.2g}'}"
    p += f" after Holm over {pairs} pairs" if pairs > 1 else ""
    if found.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told on {found.n} {items}: {metric} of {a} − {b} is "
            f"{found.mean:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}."
        )
    if found.mean < 0:
        a, b, low, high = b, a, -found.high, -found.low
    else:
        low, high = found.low, found.high
    return f"{a} is better than {b} by {abs(found.mean):.3f} (95 % {low:.3f} to {high:.3f}) in {metric}, {p}."


def _measures(runs: Sequence[Compared], metric: str) -> tuple[list[str], list[str]]:
    """Measures that all runs have and that count the same queries in each, and notes on what is not compared."""
    first, *others = [run.values for run in runs]
    applies = [name for name, values in first.items() if not np.isnan(values).all()]
    shared = [name for name in applies if all(name in values for values in others)]
    same = [name for name in shared if all((np.isnan(v[name]) == np.isnan(first[name])).all() for v in others)]
    if metric not in same:
        everywhere = "counts other queries in each run" if metric in shared else "is not in the scores of every run"
        reason = "is no mean of queries" if parse(metric).family is Family.POOLED else everywhere
        raise BadInput(f"metric={metric} {reason}.{did_you_mean(metric, same)} All runs have: {', '.join(same)}.")
    notes = []
    if own := [name for name in shared if name not in same]:
        notes.append(f"Not compared, since they count other queries in each run: {', '.join(own)}.")
    if left := sorted({name for run in runs for name in run.values} - set(shared)):
        notes.append(f"Not compared, since they apply to no query or not every run has them: {', '.join(left)}.")
    if honest := [run.label for run in runs if run.table.oof]:
        notes.append(
            f"The gate of {', '.join(honest)} was fitted on these labels: values and losses are out of "
            "fold, decided without the query's own label; the documents shown are those of the lists as written."
        )
    return same, notes


def _parts(runs: Sequence[Compared]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Kinds of queries -> which they are, bool [Q], and a note where the runs do not agree on them."""
    table = next((run.table for run in runs if "data.queries" in run.run.tags), runs[0].table)
    parts = {"single-turn": ~table.multi_turn, "multi-turn": table.multi_turn}
    parts |= {"needs retrieval": table.needs, "needs none": ~table.needs}
    if any((run.table.public != table.public).any() for run in runs):
        return parts, ["The runs split the queries into public and private in different ways: no such parts."]
    return parts | {"public": table.public, "private": ~table.public}, []


def _changed(first: Compared, second: Compared, ours: np.ndarray, theirs: np.ndarray) -> list[dict[str, Any]]:
    """The queries that differ most between two runs by their values [Q], the greatest difference first."""
    gaps = np.nan_to_num(ours - theirs)
    most = [int(i) for i in np.argsort(-np.abs(gaps), kind="stable")[:CHANGED] if gaps[i]]
    pair = {"a": first.label, "b": second.label}
    return [
        pair
        | {
            "query_id": (query_id := first.table.query_ids[i]),
            "difference": float(gaps[i]),
            "values": {first.label: float(ours[i]), second.label: float(theirs[i])},
            "documents": {
                run.label: [{"doc_id": doc_id} for doc_id in run.lists.get(query_id, ())] for run in (first, second)
            },
        }
        for i in most
    ]


def _add_texts(changed: Sequence[dict[str, Any]], runs: Sequence[Compared]) -> list[str]:
    """Put the query's text and snippets of documents into changed queries; a note where the data is not there."""
    queries: dict[str, str] = {}
    texts: dict[str, str] = {}
    for run in runs:
        for query_id, row in run.rows.items():
            queries.setdefault(query_id, row.get("standalone_query") or "")
            for doc_id, reference in zip(row["topk"], row.get("references") or (), strict=False):
                if isinstance(reference, Mapping) and isinstance(text := reference.get("content"), str):
                    texts[str(doc_id)] = text
    shown = [document for one in changed for documents in one["documents"].values() for document in documents]
    whole = all(queries.get(one["query_id"]) for one in changed) and all(one["doc_id"] in texts for one in shown)
    notes = []
    if not whole:
        try:
            more_queries, more_texts = _reloaded(runs)
        except (BadInput, OSError) as error:
            notes.append(f"Texts are missing below, since the data could not be read again: {error}")
        else:
            queries, texts = more_queries | {k: v for k, v in queries.items() if v}, more_texts | texts
    for one in changed:
        one["query"] = queries.get(one["query_id"]) or None
    for document in shown:
        text = texts.get(document["doc_id"])
        document["snippet"] = None if text is None else snippet(text)
    return notes


def _reloaded(runs: Sequence[Compared]) -> tuple[dict[str, str], dict[str, str]]:
    """query_id -> text and doc_id -> text of the runs' data set as it is now, which must be what it was then."""
    run = next((run for run in runs if "data.documents" in run.run.tags), None)
    if run is None:
        raise BadInput("these runs were scored from files, which name no documents.")
    dataset = load_unchanged(run.run, read_config(run.config)["dataset"])
    texts = {doc_id: document.indexed_text for doc_id, document in dataset.by_id.items()}
    return {query.query_id: query.text for query in dataset.queries}, texts


def _described(run: Compared, names: Sequence[str]) -> dict[str, Any]:
    """A run in numbers. metrics: what is compared. as_written: the lists' own, where these are not the same."""
    means = {name: _mean(run.values[name])["mean"] for name in names}
    written = {name: _mean(run.table.values[name])["mean"] for name in names}
    return {
        "label": run.label,
        "run_id": run.run.run_id,
        "name": run.run.name,
        "experiment": run.run.experiment,
        "out_of_fold": bool(run.table.oof),
        "metrics": means,
        "as_written": written,
        "losses": run.losses,
    }


def _masked_means(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float64 [M, R]: means over the queries of `rows` [R, Q] of M runs [M, Q], NaN where a query does not count."""
    counted = rows @ ~np.isnan(values[0])
    return (rows @ np.nan_to_num(values).T).T / np.where(counted > 0, counted, np.nan)


def _mean(values: np.ndarray) -> dict[str, Any]:
    counted = values[~np.isnan(values)]
    return {"n": len(counted), "mean": float(counted.mean()) if len(counted) else None}


def _plain(numbers: dict[str, Any]) -> dict[str, Any]:
    """Numbers as JSON takes them: NaN becomes None."""
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in numbers.items()}
