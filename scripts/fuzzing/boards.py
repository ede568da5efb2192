"""Formats that a board reads of its runs: their lists, what stood behind them, the rules of their gates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fuzzing.formats import GATE, Folder, Format, lines, reads
from harness.board.datasets import ReadAgain
from harness.board.lists import ListReader
from harness.board.queries import Collected
from harness.board.runs import BoardRun, BoardRuns
from harness.evaluation.objective import Objective
from harness.tracking.reading_ahead import Ahead
from harness.tracking.tracker import LoggedRun

BOARDS: dict[str, Format] = {}
ROWS = lines(
    {"eval_id": "q 1", "standalone_query": "달", "topk": ["d1", 2],
     "references": [{"score": 1.5, "content": "글"}, {"score": 1, "content": "둘"}]},
    {"eval_id": 2, "standalone_query": "물", "topk": [], "references": []},
)  # fmt: skip
TREC = b"q%201 Q0 d1 1 1.5 x\nq%201 Q0 2 2 1 x\n2 Q0 d9 1 0.25 x\n"
TABLE = {"columns": ["query_id", "signal", "kept"], "data": [["q 1", 1.5, True], ["2", None, False]]}
FILES = {"a/predictions.jsonl": ROWS, "a/run.trec": TREC, "a/queries.json": json.dumps(TABLE).encode(),
         "a/gate.json": json.dumps(GATE).encode(), "b/predictions.trec": TREC}  # fmt: skip


def _run(run_id: str, **tags: str) -> LoggedRun:
    params = {"gate": "auto", "predictions": "P.trec"}
    return LoggedRun(run_id, run_id, "e", "FINISHED", {}, params, {"harness.verb": "run"} | tags)


@reads("lists of runs", FILES, BOARDS)
def _lists(folder: Path) -> None:
    logged = [_run("a"), _run("b", **{"harness.verb": "score"})]
    score = Objective("x", 0.5, 0.4, 0.6)
    flags = np.ones(2, bool)
    runs = tuple(BoardRun(one, one.name, score) for one in logged)
    board = BoardRuns("x", "all", runs, ("2", "q 1"), flags, flags, flags, np.ones((2, 2)), np.zeros((2, 2), np.int8))
    reader, collected = ListReader(Ahead(Folder(), [], folder)), Collected(board, [ReadAgain()])
    for place, one in enumerate(logged):
        collected.add(place, 0, reader.returned(one) or {}, reader.retrieved(one))
    gates = [reader.gate(one) for one in logged]
    json.dumps(collected.details(gates, []).to_json(), allow_nan=False)
