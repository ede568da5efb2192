"""A corpus in shards against the same corpus whole, by BM25 on the same cores, in turns.

    python scripts/generate_corpus.py /tmp/g1M --documents 1000000 --queries 200
    python scripts/benchmark_shards.py /tmp/g1M                 # shards of 50,000 documents
    python scripts/benchmark_shards.py /tmp/g1M --shard 200000 --turns 3

Each turn reads, indexes and searches the data set (BEIR's format, best 100 documents) both ways, in an empty cache.
The columns, in seconds:

- read: documents into memory, or into shards of the cache; fingerprints included
- index: from documents to an index on disk, tokenizing included
- search: opening the index and searching all queries, tokenized before; the fastest of five passes
- merge: what of the search is reading the shards' rankings from the cache and making one of them
- memory: resident MB at the end, file maps included

Each way runs in a process of its own. The last rows are whole / shards, so that 0.8 means: shards take 1.25 times as
long. The rankings are compared, too: documents and scores must be equal in every row.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.cluster.local import Local
from harness.pipeline import sharded, steps
from harness.pipeline.session import Clock, Session, read_dataset
from harness.storage.cache import Cache
from retrievers.base import Ranking

DEPTH, PASSES = 100, 5
NODE = {
    "_target_": "retrievers.lexical.bm25.BM25",
    "tokenizer": {"_target_": "retrievers.lexical.tokenize.Whitespace"},
}
COLUMNS = ("read", "index", "search", "merge", "memory")


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096 / 1024**2


@contextmanager
def merging() -> Iterator[list[float]]:
    """The seconds of each call that merges rankings."""
    found, plain = list[float](), sharded.merge_rankings

    def timed(*arguments: Any) -> Ranking:
        began = time.perf_counter()
        result = plain(*arguments)
        found.append(time.perf_counter() - began)
        return result

    sharded.merge_rankings = timed  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        sharded.merge_rankings = plain  # type: ignore[attr-defined]


def one_way(source: str, shard: int | None, folder: str) -> dict[str, Any]:
    """Seconds of each step, memory, and the sha256 of the ranking. folder: for the cache. shard: None: whole."""
    cluster, began = {"_target_": "harness.cluster.local.Local", "shard": shard}, time.perf_counter()
    data = read_dataset({"_target_": "harness.data.trec.Beir", "path": source}, cluster, folder, "generated")
    found: dict[str, Any] = {"documents": len(data.documents), "queries": len(data.queries)}
    found["read"] = time.perf_counter() - began if data.fingerprints else 0.0
    found["shards"] = len(sharded.shards_of(data.documents)) or 1
    cache, passes = Cache(Path(folder)), list[float]()
    with merging() as merges:
        for number in range(PASSES + 1):
            queries = tuple(replace(query, query_id=f"{query.query_id}-{number}") for query in data.queries)
            session = Session(data, queries, cache, Clock(), timed="never", cluster=Local(shard))
            ranking = steps.retrieve({"bm25": NODE}, session, DEPTH)["bm25"]
            seconds = session.clock.seconds
            if number:
                passes.append(seconds["index"] + seconds["search"])
            else:  # its search compiles, too
                found["index"] = seconds["index"]
    rows = [[(doc_id, score.hex()) for doc_id, score in ranking.row(row)] for row in range(len(ranking.query_ids))]
    sha256 = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    return found | {
        "search": min(passes),
        "merge": median(merges) if merges else 0.0,
        "memory": resident(),
        "sha256": sha256,
    }


def in_own_process(source: Path, shard: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, str(source), "--only", folder, "--shard", str(shard or 0)]
        found: dict[str, Any] = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    return found


def shown(name: str, values: dict[str, float], form: str = ".2f") -> None:
    print(f"{name:12}", *(f"{values[column]:>10{'.0f' if column == 'memory' else form}}" for column in COLUMNS))


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("source", type=Path, help="a data set in BEIR's format")
    reader.add_argument("--shard", type=int, default=50_000, help="documents of a shard (default: 50000)")
    reader.add_argument("--turns", type=int, default=2, help="(default: 2)")
    reader.add_argument("--only", help=argparse.SUPPRESS)
    arguments = reader.parse_args()
    if arguments.only:
        print(json.dumps(one_way(str(arguments.source), arguments.shard or None, arguments.only)))
        return
    print(f"{'':12}", *(f"{column:>10}" for column in COLUMNS))
    rounds = []
    for _ in range(arguments.turns):
        whole, shards = (in_own_process(arguments.source, size) for size in (None, arguments.shard))
        shown("whole", whole)
        shown(f"{shards['shards']} shards", shards)
        rounds.append((whole, shards))
    steps_of = {"read": ["read"], "index": ["index"], "search": ["search"], "in all": ["read", "index", "search"]}
    for name, columns in steps_of.items():
        ratios = [sum(w[c] for c in columns) / sum(s[c] for c in columns) for w, s in rounds]
        print(f"{name}: whole / shards {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    equal = len({one["sha256"] for pair in rounds for one in pair}) == 1
    print(f"{rounds[0][0]['documents']:,} documents, {rounds[0][0]['queries']:,} queries; rankings equal: {equal}")


if __name__ == "__main__":
    main()
