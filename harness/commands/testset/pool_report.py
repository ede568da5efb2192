"""What `harness testset pool` says of a pool: what it holds, who brought it, and how far its judgements reach."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.text import counted, short_id
from harness.data.testset import EvidencedQuery
from harness.reports import terminal
from harness.testset.judgements import Judgement, current
from harness.testset.pool import MANIFEST, POOL, Pool, PooledPair
from harness.testset.resolution import Resolved, resolve
from harness.testset.reusability import Missed, Reusability, missed, reusability

if TYPE_CHECKING:
    from rich.console import Console

ORIGINS = ("runs", "seeds", "near-duplicates", "sample")  # a pair counts for the first that brought it

REPEAT = (
    "Once all pairs of some queries are judged, this command also says how far the judgements reach beyond these runs."
)


@dataclass(frozen=True, eq=False)
class Pooled:
    """A pool, what it was before, the queries of the test set, and all judgements that were ever made."""

    pool: Pool
    before: Pool | None
    queries: Sequence[EvidencedQuery]
    judgements: Sequence[Judgement]

    @cached_property
    def origins(self) -> dict[str, int]:
        found = Counter(map(_origin, self.pool.pairs))
        return {name: found[name] for name in ORIGINS}

    @cached_property
    def new(self) -> int:
        """How many pairs the former pool lacked."""
        had = {(one.query_id, one.doc_id) for one in self.before.pairs} if self.before else set()
        return sum((one.query_id, one.doc_id) not in had for one in self.pool.pairs)

    @cached_property
    def unjudged(self) -> tuple[int, int]:
        """How many pairs nobody has judged: (of queries that need retrieval, of those that need none)."""
        by_id = {one.query.query_id: one.query for one in self.queries}
        judged = {one.pair for one in current(self.judgements, by_id)}
        unneeded = {one.query.query_id for one in self.queries if one.kind == "none"}
        left = [one for one in self.pool.pairs if (one.query_id, one.doc_id) not in judged]
        none = sum(one.query_id in unneeded for one in left)
        return len(left) - none, none

    @cached_property
    def per_query(self) -> dict[str, int]:
        """The least, the median and the largest number of pairs of a query."""
        sizes = [len(pairs) for pairs in self.pool.by_query.values()]
        return {"least": min(sizes), "median": round(statistics.median(sizes)), "most": max(sizes)}

    @cached_property
    def _resolved(self) -> Resolved | None:
        return resolve(self.judgements, self.queries, self.pool.pairs) if self.judgements else None

    @cached_property
    def reusability(self) -> Reusability | None:
        return reusability(self.pool, self._resolved, self.queries) if self._resolved else None

    @cached_property
    def missed(self) -> Missed | None:
        return missed(self.pool, self._resolved, self.queries) if self._resolved else None


def show(style: str, testset: Path, pooled: Pooled, notes: Sequence[str]) -> dict[str, Any]:
    """Print what was pooled, as text or JSON; the document."""
    document = {
        "testset": str(testset),
        "files": {"pool": str(testset / POOL), "manifest": str(testset / MANIFEST)},
        "queries": len(pooled.pool.about.queries),
        "pairs": len(pooled.pool.pairs),
        "new": pooled.new,
        "unjudged": dict(zip(("needs_retrieval", "needs_none"), pooled.unjudged, strict=True)),
        "per_query": pooled.per_query,
        "origins": pooled.origins,
        "runs": [_run_row(pooled.pool, run_id) for run_id in pooled.pool.about.runs],
        "reusability": pooled.reusability and asdict(pooled.reusability),
        "missed": pooled.missed and asdict(pooled.missed),
        "notes": list(notes),
    }
    terminal.emit(style, document, lambda console: _show(console, testset, pooled, notes))
    return document


def _show(console: Console, testset: Path, pooled: Pooled, notes: Sequence[str]) -> None:
    header = ("run", "name", "depth", "pairs", "it alone")
    table = terminal.bare_table(header, left=header[:2], folded=header[1:2])
    for run_id in pooled.pool.about.runs:
        row = _run_row(pooled.pool, run_id)
        table.add_row(short_id(run_id), row["name"], *(f"{row[key]:,}" for key in ("depth", "pairs", "alone")))
    console.print(table)
    console.print()
    sizes, about = pooled.per_query, pooled.pool.about
    console.print(
        f"{counted(len(pooled.pool.pairs), 'pair')} of {counted(len(about.queries), 'query')}, {sizes['least']} to "
        f"{sizes['most']} each, {sizes['median']} in the middle; {pooled.new:,} new."
    )
    console.print(f"Brought by {', '.join(f'{name} {count:,}' for name, count in pooled.origins.items())}.")
    left, unneeded = pooled.unjudged
    people = f", and {unneeded:,} of queries that need no retrieval, which only people judge" if unneeded else ""
    console.print(f"Not judged: {left:,}{people}.")
    for one in (pooled.reusability, pooled.missed):
        if one:
            console.print(one.text())
    if not pooled.reusability:
        console.print(REPEAT, style="dim")
    for note in notes:
        console.print(note, style="dim")
    console.print(f"{testset / POOL}: {counted(len(pooled.pool.pairs), 'pair')}.")
    console.print("Next:")
    keys = {"judge": "model=NAME", "review": "reviewer=NAME", "freeze": "leave_out=true"}
    for command in ("judge", "review") if left else ("review", "freeze"):
        console.print("  " + shlex.join(["harness", "testset", command, f"testset={testset}", keys[command]]))


def _run_row(pool: Pool, run_id: str) -> dict[str, Any]:
    """What a run brought. pairs: of its first documents. alone: those that no other run brought."""
    run = pool.about.runs[run_id]
    pairs = [one for one in pool.pairs if run_id in one.ranks]
    alone = sum(len(one.ranks) == 1 for one in pairs)
    return {"run_id": run_id, "name": run.name, "depth": run.depth, "pairs": len(pairs), "alone": alone}


def _origin(pair: PooledPair) -> str:
    brought = (bool(pair.ranks), pair.seed, pair.near_duplicate, True)
    return ORIGINS[brought.index(True)]
