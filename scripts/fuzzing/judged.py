"""Formats of a judged test set: what was pooled, and who has judged what."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from fuzzing.formats import Files, Format, lines, reads, same
from harness.testset import pool as pools
from harness.testset.judgements import Judgement, JudgementLog, by_pair, current
from harness.testset.pool import About, Pool, PooledPair, PooledRun
from retrievers.base import Query

JUDGED: dict[str, Format] = {}
TESTSET = {"ts/testset.json": b'{"version": 1}', "docs/manifest.json": b'{"version": 1}'}


def _pooled() -> Files:
    pairs = (
        PooledPair("7", "d1", {"a1": 1, "b2": 3}, seed=True),
        PooledPair("7", "d 2", near_duplicate=True),
        PooledPair("q2", "d1", pi=0.25),
    )
    about = About("../docs", "ab", {"a1": PooledRun("bm25", 10)}, 5, 0, {"7": "ab", "q2": "cd", "q3": "ef"})
    with tempfile.TemporaryDirectory() as name:
        pools.write(Path(name), Pool(pairs, about))
        return TESTSET | {f"ts/{one}": (Path(name) / one).read_bytes() for one in (pools.POOL, pools.MANIFEST)}


@reads("pool", _pooled, JUDGED, changes=True)
def _pool(folder: Path) -> None:
    read = pools.read_pool(folder / "ts")
    assert sum(map(len, read.by_query.values())) == len(read.pairs)
    pools.documents_of(folder / "ts", None)
    pools.write(folder / "ts", read)
    same(pools.read_pool(folder / "ts"), read, "the pool")


ROW = {"query": 7, "text": "ab", "doc": "d1", "grade": 2, "by": "human:kim", "at": "2026-11-22T09:30:00Z"}
MORE = {"needs": None, "round": 2, "sample": "audit", "pi": 0.5, "blind": True, "quote": "달", "withdrawn": True}
NEEDS = ROW | {"doc": None, "grade": None, "needs": False, "by": "adjudicated:lee"}
TORN = json.dumps(ROW).encode()[:40]
NEW = Judgement("7", "ab", "d9", 3, "llm:tiny#0123", "2026-11-22T09:31:00Z")


@reads("judgements", {"judgements.jsonl": lines(ROW, ROW | MORE, NEEDS) + TORN}, JUDGED, changes=True)
def _judgements(folder: Path) -> None:
    log = JudgementLog(folder)
    read = log.read()
    by_pair(current(read, {"7": Query.of("7", "달")}))
    log.append([NEW])
    same(log.read(), [*read, NEW], "the judgements")
