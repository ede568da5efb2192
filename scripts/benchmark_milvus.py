"""Vectors in Milvus against the exact index here: equal documents and scores, what is certified, and how fast.

    python scripts/benchmark_milvus.py 1000000 --width 384               # generated vectors, in a server of its own
    python scripts/benchmark_milvus.py 100000 --lite                     # in milvus-lite, in this process
    python scripts/benchmark_milvus.py --data science_qa --encoders lsa all_minilm_l6_v2     # or a model's folder
    python scripts/benchmark_milvus.py --data KorQuAD_v1.0_dev.json

Printed: seconds to fill and load the collection; rows whose documents and float64 scores are equal to those of
`index=flat`, in every bit; the share of queries certified with the first k + 20 candidates, and at the end; queries per
second of both, in turns, with the median of --passes. k is 100. The server is started as by milvus_server.py, in a
network namespace. Generated vectors are those of benchmark_search.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmark import seconds, timed
from benchmark_search import embeddings
from milvus_server import PLACE, URI, bring_up_loopback, isolated, serving

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness
from retrievers.dense.milvus import MilvusIndex
from retrievers.dense.vectors import Flat
from retrievers.engines import proposing
from retrievers.engines.milvus import connect

DEPTH = 100


@dataclass(frozen=True)
class Case:
    """What is searched: float32 [N, D] vectors, for float32 [Q, D] queries."""

    name: str
    vectors: np.ndarray
    queries: np.ndarray


def generated(args: argparse.Namespace, folder: Path) -> Iterator[Case]:
    for rows in args.rows:
        (place := folder / str(rows)).mkdir()
        vectors = embeddings(rows, args.width, 1, place)
        (asked := folder / f"{rows}-queries").mkdir()
        queries = np.array(embeddings(args.queries, args.width, 2, asked))
        yield Case(f"{rows:,} x {args.width} generated", vectors, queries)


def encoded(args: argparse.Namespace) -> Iterator[Case]:
    """Vectors of documents and queries of a data set, from a run of each encoder."""
    kind = "squad" if args.data.suffix == ".json" else "contest"
    for encoder in args.encoders:
        with tempfile.TemporaryDirectory() as folder:
            store, words = Path(folder), [f"dataset={kind}", f"dataset.path={args.data}", "tracking=none"]
            words += ["encoder=local", f"encoder.path={encoder}"] if Path(encoder).is_dir() else [f"encoder={encoder}"]
            harness.run(*words, "retriever=dense", f"store.path={store}", f"outputs={store / 'outputs'}")
            [vectors] = (store / "embeddings").glob("*/embeddings.npy")
            [queries] = (store / "query_embeddings").glob("*/*.npy")
            yield Case(f"{args.data.name}, {encoder}", np.load(vectors, mmap_mode="r"), np.load(queries))


def measure(case: Case, passes: int) -> dict[str, object]:
    """All figures of a case; its collection is dropped."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        flat, milvus = Flat(), MilvusIndex()
        flat.build(case.vectors, Path(one))
        filling = seconds(lambda: milvus.build(case.vectors, Path(other)))
        print(f"{case.name}: filled in {filling:.0f} s", file=sys.stderr, flush=True)
        collection = json.loads((Path(other) / "engine.json").read_text("utf-8"))["collection"]
        ours, theirs, expected, found = [], [], None, None
        for _ in range(passes):
            took, expected = timed(lambda: flat.search(case.queries, case.vectors, DEPTH))
            ours.append(len(case.queries) / took)
            took, found = timed(lambda: milvus.search(case.queries, case.vectors, DEPTH))
            theirs.append(len(case.queries) / took)
        at_first = first_certified(milvus, case)
        connect().drop(collection)
    assert expected is not None
    assert found is not None
    equal = (expected.docs == found.docs).all(axis=1) & (expected.scores == found.scores).all(axis=1)
    return {
        "case": case.name,
        "rows": len(case.vectors),
        "dimensions": case.vectors.shape[1],
        "filled in s": round(filling, 1),
        "queries": len(case.queries),
        "equal rows": int(equal.sum()),
        "certified at k + 20": at_first,
        "certified": found.measured.get("certified"),
        "flat queries/s": round(statistics.median(ours), 1),
        "milvus queries/s": round(statistics.median(theirs), 1),
    }


def first_certified(index: MilvusIndex, case: Case) -> float | None:
    """The share certified where no more than k + 20 candidates are ever asked for."""
    limit, proposing.LIMIT = proposing.LIMIT, DEPTH + proposing.SPARE
    try:
        return index.search(case.queries, case.vectors, DEPTH).measured.get("certified")
    finally:
        proposing.LIMIT = limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="*", help="generated vectors")
    parser.add_argument("--width", type=int, default=384, help="dimensions of generated vectors")
    parser.add_argument("--queries", type=int, default=256, help="generated queries")
    parser.add_argument("--data", type=Path, help="folder of contest files, or a SQuAD file")
    parser.add_argument("--encoders", nargs="+", default=["lsa", "use_multilingual"])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--lite", action="store_true", help="milvus-lite instead of a server")
    parser.add_argument("--place", type=Path, default=PLACE, help="virtual environment of the server")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.lite and not args.inside:
        return isolated(Path(__file__), sys.argv[1:], args.place)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-milvus-")))
        os.environ["HARNESS_MILVUS_URI"] = str(folder / "lite.db")
        if not args.lite:
            bring_up_loopback()
            stack.enter_context(serving(None, args.place))
            os.environ["HARNESS_MILVUS_URI"] = URI
        for case in encoded(args) if args.data else generated(args, folder):
            print(json.dumps(measure(case, args.passes), indent=1), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
