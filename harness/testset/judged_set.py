"""A test set as far as it is judged: what is pooled, and who has said what of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.data.testset import EvidencedQuery, read_queries
from harness.testset.judgements import ADJUDICATED, LLM, Judgement, JudgementLog, Pair, by_pair, current, text_digest
from harness.testset.pool import PooledPair, read_pool


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """A test set with its pool and the judgements that hold.

    queries: query_id -> query. pairs: of the pool. judgements: as `judgements.current` gives them.
    """

    queries: Mapping[str, EvidencedQuery]
    pairs: Sequence[PooledPair]
    judgements: Sequence[Judgement]

    @cached_property
    def pooled(self) -> Mapping[str, Sequence[PooledPair]]:
        """query_id -> its pooled pairs; none for queries that nothing was pooled for."""
        found: dict[str, list[PooledPair]] = {query_id: [] for query_id in self.queries}
        for pair in self.pairs:
            if pair.query_id in found:
                found[pair.query_id].append(pair)
        return found

    @cached_property
    def of_people(self) -> Mapping[Pair, Sequence[Judgement]]:
        """Pair -> the judgements by people, both rounds and adjudications included."""
        return by_pair([one for one in self.judgements if one.basis != LLM])

    @cached_property
    def of_models(self) -> Mapping[Pair, Sequence[Judgement]]:
        """Pair -> the judgements by models, the last of them last."""
        return by_pair([one for one in self.judgements if one.basis == LLM])

    def first_round(self, pair: Pair, audit: bool = False) -> list[Judgement]:
        """What people say of a pair the first time. audit: only what they said for the audit."""
        return [one for one in self.of_people.get(pair, ()) if one.round == 1 and (not audit or one.sample == "audit")]

    def model_grade(self, pair: Pair) -> int | None:
        """The grade by the model that judged the pair last; None without one."""
        found = self.of_models.get(pair, ())
        return found[-1].grade if found else None

    def unneeded(self, query_id: str) -> bool:
        """Whether people agree, or one who adjudicated says, that the query needs no retrieval."""
        said = self.first_round((query_id, None))
        deciding = [one for one in said if one.basis == ADJUDICATED][-1:] or said
        return bool(deciding) and all(one.needs is False for one in deciding)

    def checked(self, query_id: str) -> bool:
        """Whether people have judged, for the audit, all that there is to judge of a query."""
        if not self.first_round((query_id, None), audit=True):
            return False
        pairs = () if self.unneeded(query_id) else self.pooled[query_id]
        return all(self.first_round((query_id, one.doc_id), audit=True) for one in pairs)


def read_judged_set(folder: Path) -> JudgedSet:
    """The test set in a folder, as far as it is pooled and judged now. BadInput where one of its files is wrong.

    What was pooled for a query that has been edited since is left out, as are judgements of it.
    """
    queries = {one.query.query_id: one for one in read_queries(folder, "testset")}
    texts = {query_id: text_digest(one.query) for query_id, one in queries.items()}
    pool = read_pool(folder)
    pairs = [one for one in pool.pairs if texts.get(one.query_id) == pool.about.queries[one.query_id]]
    log = JudgementLog(folder).read()
    return JudgedSet(queries, pairs, current(log, {query_id: one.query for query_id, one in queries.items()}))
