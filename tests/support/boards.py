"""Boards of made-up runs: a grid of settings with known effects on made-up queries."""

import itertools

import numpy as np

from harness.analysis.board.runs import LOSSES, BoardRuns
from harness.analysis.ranking import RankedRun
from harness.measures.objective import Objective
from harness.tracking.tracker import LoggedRun

RETRIEVERS = {"bm25": 0.0, "hybrid_lexical": 0.08, "hybrid_light": 0.1, "dense": 0.02}
GATES = {"none": 0.0, "auto": 0.05}
TOP_K = (1, 2, 3)


def made_runs(queries=40, seed=0, top_k=TOP_K):
    """Runs of every retriever, gate and top_k, each with a value of modified_map@3 on each query."""
    rng = np.random.default_rng(seed)
    ease = rng.beta(2, 1, queries)
    grid = list(itertools.product(RETRIEVERS, GATES, top_k))
    values = np.stack([
        np.clip(np.round(6 * (ease + RETRIEVERS[r] + GATES[g] + rng.normal(0, 0.15, queries))) / 6, 0, 1)
        for r, g, _ in grid
    ])  # fmt: skip
    needs = rng.random(queries) < 0.9
    runs = [made_run(number, *one, values[number].mean()) for number, one in enumerate(grid)]
    order = np.argsort(-values.mean(axis=1), kind="stable")
    lost = np.where(needs, rng.choice([2, 3, 4], values.shape), LOSSES.index("wrongly_returned"))
    return BoardRuns(
        metric="modified_map@3",
        select_on="all",
        runs=tuple(runs[place] for place in order),
        query_ids=tuple(f"q{number:04d}" for number in range(queries)),
        needs=needs,
        multi_turn=rng.random(queries) < 0.2,
        public=rng.random(queries) < 0.4,
        values=values[order],
        losses=np.where(values >= 1, 0, lost)[order].astype(np.int8),
    )


def made_run(number, retriever, gate, top_k, value):
    kind = "out of fold" if gate == "auto" else "in sample"
    score = Objective("modified_map@3", float(value), float(value) - 0.06, float(value) + 0.06, kind)
    logged = LoggedRun(
        run_id=f"{number:08x}".ljust(32, "0"),
        name=f"{retriever}-kiwi-{gate}",
        experiment="made",
        status="FINISHED",
        metrics={
            "objective": score.value,
            "objective_low": score.low,
            "objective_high": score.high,
            "ms_per_query": 1.0,
        },
        params={"retriever": retriever, "gate": gate, "top_k": str(top_k), "tokenizer": "kiwi"},
        tags={"harness.verb": "run", "objective.name": score.name, "objective.kind": kind},
        began=1_790_000_000_000 + number,
    )
    return RankedRun(logged, score, name=f"{retriever} · {gate} · top {top_k}")
