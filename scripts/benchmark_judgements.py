"""Time what works on a judged test set, and say how much memory each step takes.

    python scripts/benchmark_judgements.py [QUERIES] [DOCUMENTS]     # default 1000 50: 50,000 pairs, all judged

Each pair is judged by an invented model, and 60 queries by an invented person, too. Each step is a process of its own,
which imports first. `seconds` is then the step alone, the best of three; `memory` the most that the process held. The
page is loaded by a reviewer who is to judge all that no person has judged.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from judged_sets import judged_set  # noqa: E402

from harness.cli import call  # noqa: E402
from harness.data.dataset import load  # noqa: E402
from harness.data.frozen import Frozen  # noqa: E402
from harness.data.testset import read_queries  # noqa: E402
from harness.testset import pool as pools  # noqa: E402
from harness.testset.judgements import Judgement, JudgementLog, text_digest  # noqa: E402
from harness.testset.pool import Pool, PooledPair, read_pool  # noqa: E402
from harness.testset.resolution import resolve  # noqa: E402
from harness.testset.review.server import ReviewServer  # noqa: E402

TESTSET, CHECKED, AT = Path("ts"), 60, "2026-11-22T09:30:00Z"


def main() -> None:
    if sys.argv[1:2] == ["--step"]:
        print(json.dumps(_timed(sys.argv[2])))
        return
    queries, documents = (int(one) for one in (*sys.argv[1:], "1000", "50")[:2]) if sys.argv[1:] else (1000, 50)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(f"{_make(queries, documents):,} judgements\n")
        print("| step | seconds | memory, MB |")
        print("|---|---:|---:|")
        for name in STEPS:
            done = subprocess.run(
                [sys.executable, __file__, "--step", name], capture_output=True, text=True, check=True
            )
            seconds, memory = json.loads(done.stdout.splitlines()[-1])
            print(f"| {name} | {seconds:.2f} | {memory:,.0f} |", flush=True)


def _make(queries: int, documents: int) -> int:
    """Write documents, a test set, its pool and judgements; the number of judgements."""
    made = judged_set(Path(), topics=queries)
    own = made.doc_ids
    flat = [doc_id for ids in own for doc_id in ids]
    pooled: dict[str, list[str]] = {}
    for topic, query_id in enumerate(made.query_ids):
        near = (flat * 2)[topic * 4 : topic * 4 + documents]
        pooled[query_id] = list(dict.fromkeys(near))
    pool = made.pool()
    ranks = dict.fromkeys(pool.about.runs, 1)
    pairs = [PooledPair(query_id, doc_id, ranks) for query_id in sorted(pooled) for doc_id in sorted(pooled[query_id])]
    pools.write(made.folder, Pool(tuple(pairs), pool.about))
    drawn = made.query_ids[:: max(1, queries // CHECKED)][:CHECKED]
    strata = dict(made.kinds)
    (made.folder / "audit.json").write_text(json.dumps({"seed": 0, "strata": strata, "drawn": drawn, "twice": []}))
    found = []
    for topic, query_id in enumerate(made.query_ids):
        text, answer, unanswerable = text_digest(made.queries[query_id]), own[topic][1], "unanswerable"
        for place, doc_id in enumerate(pooled[query_id]):
            grade = 3 if doc_id == answer and made.kinds[query_id] != unanswerable else place % 7 == 6
            found.append(Judgement(query_id, text, doc_id, int(grade), "llm:tiny#0123abcd", AT))
            if query_id in drawn:
                said = {"sample": "audit", "pi": 0.06}
                found.append(Judgement(query_id, text, doc_id, int(grade), "human:kim", AT, **said))  # type: ignore[arg-type]
        if query_id in drawn:
            needs = made.kinds[query_id] != "none"
            found.append(Judgement(query_id, text, None, None, "human:kim", AT, needs, sample="audit", pi=0.06))
    JudgementLog(made.folder).append(found)
    return len(found)


def _timed(name: str) -> tuple[float, float]:
    """(seconds of a step, the most memory of this process in MB)."""
    step = STEPS[name]()
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - began)
    return best, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _reading() -> Callable[[], object]:
    return lambda: (read_queries(TESTSET, "testset"), read_pool(TESTSET), JudgementLog(TESTSET).read())


def _resolving() -> Callable[[], object]:
    queries, pool, judgements = read_queries(TESTSET, "testset"), read_pool(TESTSET), JudgementLog(TESTSET).read()
    return lambda: resolve(judgements, queries, pool.pairs)


def _command(name: str, *words: str) -> Callable[[], Callable[[], object]]:
    def prepared() -> Callable[[], object]:
        importlib.import_module(f"harness.commands.testset.{name}")

        def step() -> None:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = call(f"testset {name}", [f"testset={TESTSET}", "format=json", *words])
            assert code == 0, printed.getvalue()

        return step

    return prepared


def _loading() -> Callable[[], object]:
    return lambda: load(Frozen(path=str(TESTSET / "v1")), "frozen").fingerprints


def _page() -> Callable[[], object]:
    """The command from its beginning until a browser has the page and its data."""
    serve = ReviewServer.serve_forever

    def loaded(server: ReviewServer) -> None:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        [link] = server.links.values()
        for path in ("", "api/items"):
            with urllib.request.urlopen(link + path) as answer:
                answer.read()
        server.shutdown()
        raise KeyboardInterrupt

    ReviewServer.serve_forever = loaded  # type: ignore[method-assign,assignment]
    return _command("review", "reviewer=lee", "sample=all")()


STEPS = {
    "read queries, pool and judgements": _reading,
    "resolve": _resolving,
    "testset freeze": _command("freeze"),
    "read the frozen test set": _loading,
    "testset audit": _command("audit"),
    "first load of the page": _page,
}

if __name__ == "__main__":
    main()
