"""Make traces for MLflow's pages on request. A trace has the inputs and outputs of each step for one query.

Queries are searched in batches, so traces are made afterwards from the run's outcome, without another search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.config.components import build
from harness.config.schema import Node
from harness.config.text import short_id
from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.experiment.cached_parts import CachedTokenizer
from harness.experiment.ordering import fuse
from harness.experiment.plan import Plan
from harness.experiment.session import Session
from harness.experiment.steps import Outcome
from harness.experiment.timing import MS
from harness.fusion.rule import FusionRule
from harness.measures.judged import judge_lists
from harness.measures.measures import SPAN_MEASURES, MeasureFamily, losses
from harness.progress import watch
from harness.storage.cache import Cache
from harness.storage.typed import row_as
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.mlflow_spans import Trace, TraceSpan
from harness.tracking.tracker import Tracker
from retrievers.base import Ranking

DOCUMENTS = 10  # number of documents shown per ranking
CONTENT = 300  # number of characters shown of a document's text
BATCH = 20  # number of traces sent in one call, about a megabyte
PERFECT = 1 - 1e-9  # a higher score differs from 1 only by rounding
BATCHED = "mean over the run's queries, which are searched in one batch"


def check_traces(plan: Plan, labelled: bool) -> None:
    """Raise BadInput if the traces cannot be stored or selected."""
    trace, objective = plan.trace, plan.objective
    if trace == "none":
        return
    if not (tracker := plan.made("tracking")).keeps_runs:
        raise BadInput(
            f"trace={trace} needs MLflow, which stores the traces: leave out tracking={tracker.choice} or trace."
        )
    if trace == "all":
        return
    if not labelled:
        raise BadInput("trace=errors needs labels, and there are none: give dataset.qrels=FILE, or use trace=all.")
    if plan.measure.family is MeasureFamily.POOLED or objective not in (*plan.metrics, *SPAN_MEASURES):
        raise BadInput(
            f"trace=errors needs an objective that is among metrics=[...] and scores each query, unlike {objective}. "
            "Choose another objective, such as objective=modified_map@3, or use trace=all."
        )


def write_traces(plan: Plan, session: Session, outcome: Outcome, tracker: Tracker, run_id: str) -> tuple[int, str]:
    """Write the requested traces, linked to the run. Return their number, and why some are missing ("" if none is)."""
    if not (rows := traced_rows(plan, outcome)):
        return 0, ""
    tracer = Tracer(plan, session.dataset, outcome, session.cache)
    try:
        with watch("traces") as progress:
            for done in range(0, len(rows), BATCH):
                batch = [tracer.trace(row, run_id) for row in rows[done : done + BATCH]]
                tracker.trace(run_id, plan.experiment_name, batch)
                progress(done + len(batch), len(rows), "traces")
    except Unreachable as error:  # the run stays: its numbers need no traces
        lacking = f"Run {short_id(run_id)} is logged, but some of its traces are not: {error}."
        return 0, f"{lacking} Repeat the command to log the traces."
    return len(rows), ""


def traced_rows(plan: Plan, outcome: Outcome) -> list[int]:
    """Return the rows to trace: all rows, or with `trace=errors`, the rows of labelled queries that score below 1."""
    rows = range(len(outcome.queries))
    if plan.trace == "none":
        return []
    if plan.trace == "all":
        return list(rows)
    scores = _by_query(outcome, plan.objective)
    return [row for row in rows if scores.get(outcome.queries[row].query_id, 1.0) < PERFECT]


class Tracer:
    """Makes the traces of a run. Tokens come from the cache, where the run's retrievers have put the tokens."""

    def __init__(self, plan: Plan, dataset: Dataset, outcome: Outcome, cache: Cache) -> None:
        self.plan, self.dataset, self.outcome = plan, dataset, outcome
        self.scores = _by_query(outcome, plan.objective)
        self.losses = _losses(outcome, dataset.qrels) if dataset.qrels and outcome.scores else {}
        texts = [query.text for query in outcome.queries]
        self.tokens = {
            name: _tokens(node["tokenizer"], texts, cache)
            for name, node in plan.retriever.items()
            if "tokenizer" in node
        }
        # The outcome has only the lists after reranking, so fuse again.
        rule = row_as(FusionRule, outcome.fusion["rule"], "rule") if outcome.fusion else None
        self.fused = rule.fuse(outcome.rankings, plan.depth) if rule else fuse(plan, outcome.rankings)

    def trace(self, row: int, run_id: str) -> Trace:
        query, final = self.outcome.queries[row], self.outcome.final
        turns = [{"role": turn.role, "content": turn.content} for turn in self.dataset.queries[row].turns]
        tags = {"query_id": query.query_id, "run_id": run_id}
        if query.query_id in self.scores:
            tags |= {"objective": self.plan.objective, "score": f"{self.scores[query.query_id]:.4f}"}
        if query.query_id in self.losses:
            tags["loss"] = self.losses[query.query_id]
        inputs, found = {"query": query.text, "messages": turns}, self._documents(final, row)
        root = TraceSpan(
            "retrieval", "CHAIN", inputs, found, attributes=self._about(final, row), children=self._steps(row)
        )
        return Trace(root, tags)

    def _steps(self, row: int) -> tuple[TraceSpan, ...]:
        spans = [self._retriever(name, row) for name in self.outcome.rankings]
        if "fusion" in self.plan.active:
            spans.append(self._ranked("fusion", "CHAIN", {"rankings": list(self.outcome.rankings)}, self.fused, row))
        if "rerank" in self.plan.active:
            head = [doc_id for doc_id, _ in self.fused.top(self.plan.rerank["depth"]).row(row)]
            inputs = {"query": self.outcome.queries[row].text, "documents": head}
            spans.append(self._ranked("rerank", "RERANKER", inputs, self.outcome.candidates, row))
        return (*spans, self._gate(row))

    def _retriever(self, name: str, row: int) -> TraceSpan:
        inputs = {"query": self.outcome.queries[row].text}
        about = {"duration": "not measured"}
        tokens = [TraceSpan("tokenise", "PARSER", inputs, of[row], about) for of in [self.tokens.get(name)] if of]
        return self._ranked(name, "RETRIEVER", inputs, self.outcome.rankings[name], row, tuple(tokens))

    def _ranked(
        self, name: str, kind: str, inputs: Any, ranking: Ranking, row: int, children: tuple[TraceSpan, ...] = ()
    ) -> TraceSpan:
        ms = self.outcome.measured.get(f"{MS}/{name}")
        about = {"duration": "not measured" if ms is None else BATCHED, **self._about(ranking, row)}
        return TraceSpan(name, kind, inputs, self._documents(ranking, row), about, ms or 0.0, children)

    def _gate(self, row: int) -> TraceSpan:
        gate, decision = self.plan.gate, self.outcome.decision
        rule: Mapping[str, Any] = decision.fitted["rule"] if decision.fitted else {}
        if "threshold" in gate:
            rule = {"features": [[gate["source"], gate["signal"]]], "thresholds": [gate["threshold"]]}
        inputs = {"signal": None if decision.signal is None else float(decision.signal[row])}
        inputs |= {name: rule[name] for name in ("features", "levels", "thresholds") if name in rule}
        shown = min(int(decision.shown[row]), self.plan.top_k)
        about = {"gate": gate["_target_"].rpartition(".")[2], "duration": "not measured"}
        return TraceSpan("gate", "GUARDRAIL", inputs, {"retrieve": shown > 0, "shown_at_most": shown}, about)

    def _documents(self, ranking: Ranking, row: int) -> list[dict[str, Any]]:
        grades = self._grades(row)
        shown = []
        for rank, (doc_id, score) in enumerate(ranking.row(row)[:DOCUMENTS], start=1):
            document = self.dataset.by_id[doc_id]
            graded = {} if grades is None else {"relevance": grades.get(doc_id, 0)}
            about: dict[str, Any] = {**graded}  # the relevance comes first, since MLflow's lists show only one entry
            about |= {"rank": rank, "score": round(score, 6), "doc_id": doc_id, "title": document.title}
            text = document.text if len(document.text) <= CONTENT else document.text[: CONTENT - 1] + "…"
            shown.append({"page_content": text, "metadata": about, "id": doc_id})
        return shown

    def _about(self, ranking: Ranking, row: int) -> dict[str, Any]:
        """Return the number of listed documents, and the rank of each labelled document (None if it is not listed)."""
        about: dict[str, Any] = {"documents": int(ranking.lengths[row])}
        if (grades := self._grades(row)) is not None:
            ranks = {doc_id: rank for rank, (doc_id, _) in enumerate(ranking.row(row), start=1)}
            about["relevant_at"] = {doc_id: ranks.get(doc_id) for doc_id in grades}
        return about

    def _grades(self, row: int) -> Mapping[str, float] | None:
        qrels = self.dataset.qrels
        return qrels.grades.get(self.outcome.queries[row].query_id) if qrels else None


def _tokens(node: Node, texts: Sequence[str], cache: Cache) -> list[list[str]]:
    with watch("tokens") as progress:
        return CachedTokenizer(cache, node, lambda: build(node, where="tokenizer"), progress)(texts).lists()


def _by_query(outcome: Outcome, objective: str) -> dict[str, float]:
    if not outcome.scores or objective not in outcome.scores.values:
        return {}
    pairs = zip(outcome.scores.query_ids, outcome.scores.values[objective].tolist(), strict=True)
    return {query_id: value for query_id, value in pairs if value == value}


def _losses(outcome: Outcome, qrels: Qrels) -> dict[str, str]:
    assert outcome.scores
    scored = outcome.scores.query_ids
    place = {query.query_id: row for row, query in enumerate(outcome.queries)}
    keep = outcome.decision.keep[np.array([place[query_id] for query_id in scored], int)]
    by_kind = losses(judge_lists(outcome.final, qrels, scored), judge_lists(outcome.candidates, qrels, scored), keep)
    lost = ((kind, values > 0) for kind, values in by_kind.items())
    return {query_id: kind for kind, any_lost in lost for query_id, one in zip(scored, any_lost, strict=True) if one}
