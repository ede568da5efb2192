"""Sparse retrieval by Milvus against the local indexes: equal documents and scores, what is certified, and how fast.

    python scripts/benchmark_milvus_sparse.py dataset=contest dataset.path=DATA/science_qa
    python scripts/benchmark_milvus_sparse.py dataset=squad dataset.path=DATA/KorQuAD_v1.0_dev.json
    python scripts/generate_corpus.py /tmp/g100k --documents 100000 --queries 220
    python scripts/benchmark_milvus_sparse.py dataset=beir dataset.path=/tmp/g100k tokenizer=whitespace --queries 220
    python scripts/benchmark_milvus_sparse.py dataset=contest dataset.path=DATA/science_qa retriever=bge_m3_sparse \\
        retriever.bge_m3_sparse.path=MODEL

The overrides are those of `harness run`. Each retriever is indexed and searched with engine=sparse and engine=milvus,
in a milvus-lite of its own, or where HARNESS_MILVUS_URI points. Printed, for k = 100: seconds to index, tokens taken
from the cache; rows whose documents and float64 scores are equal, in every bit; the share of queries certified with the
first k + 20 candidates, and at the end; queries a second of both, their tokens from the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import timed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.config.components import build
from harness.config.hydra_app import compose
from harness.data.dataset import load, search_queries
from harness.pipeline.cached_parts import Caching
from harness.storage.cache import open_cache
from retrievers.base import Query
from retrievers.engines import proposing
from retrievers.engines.milvus import URI, connect

DEPTH = 100


def measure(node: dict[str, Any], dataset: Any, queries: Sequence[Query], folder: Path, passes: int) -> dict[str, Any]:
    """All figures of a retriever; its collection is dropped. folder: an empty one."""
    cache = open_cache(str(folder / "cache"))  # tokens and embeddings are computed once
    wrap = Caching(cache, str(dataset.fingerprints["documents"]), lambda *_: None)
    retrievers, filling = {}, {}
    for engine in ("sparse", "milvus"):
        (place := folder / engine).mkdir()
        retrievers[engine] = build({**node, "engine": engine}, wrap)
        filling[engine], _ = timed(
            lambda engine=engine, place=place: retrievers[engine].index(dataset.documents, place)
        )
    ours, theirs, expected, found = [], [], None, None
    for _ in range(passes):
        took, expected = timed(lambda: retrievers["sparse"].search(queries, DEPTH))
        ours.append(len(queries) / took)
        took, found = timed(lambda: retrievers["milvus"].search(queries, DEPTH))
        theirs.append(len(queries) / took)
    assert expected is not None
    assert found is not None
    at_first = first_certified(retrievers["milvus"], queries)
    record = json.loads((folder / "milvus" / "engine.json").read_text("ascii"))
    connect().drop(record["collection"])
    equal = [expected.row(i) == found.row(i) for i in range(len(queries))]
    return {
        "documents": len(dataset.documents),
        "rows sent": record["rows"],
        "indexed in s by sparse, milvus": [round(one, 1) for one in filling.values()],
        "queries": len(queries),
        "equal rows": int(np.sum(equal)),
        "certified at k + 20": at_first,
        "certified": found.measured.get("certified"),
        "sparse queries/s": round(statistics.median(ours), 1),
        "milvus queries/s": round(statistics.median(theirs), 1),
    }


def first_certified(retriever: Any, queries: Sequence[Query]) -> float | None:
    """The share certified where no more than k + 20 candidates are ever asked for."""
    limit, proposing.LIMIT = proposing.LIMIT, DEPTH + proposing.SPARE
    try:
        share: float | None = retriever.search(queries, DEPTH).measured.get("certified")
        return share
    finally:
        proposing.LIMIT = limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="overrides of harness run")
    parser.add_argument("--queries", type=int, default=1000, help="the first queries of the data set")
    parser.add_argument("--passes", type=int, default=3)
    args = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-milvus-") as name:
        os.environ.setdefault(URI, f"{name}/lite.db")
        config, _ = compose("run", args.words)
        dataset = load(build(config["dataset"], where="dataset"), "dataset")
        queries = search_queries(dataset)[: args.queries]
        for retriever, node in config["retriever"].items():
            (folder := Path(name) / retriever).mkdir()
            print(retriever, json.dumps(measure(node, dataset, queries, folder, args.passes), indent=1), flush=True)


if __name__ == "__main__":
    main()
