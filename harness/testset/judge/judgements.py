"""The judgements of a test set: `judgements.jsonl`, the append-only log from which all labels come.

A judge's later judgement of the same pair in the same round replaces the earlier one. If the later judgement is
marked `withdrawn`, it only revokes the earlier one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from harness.data.testset import EvidencedQuery, read_queries
from harness.storage.append_log import AppendLog
from harness.storage.locks import locked
from harness.testset.pool.pool import PooledPair, pairs_by_query, read_pool
from retrievers.base import Query

JUDGEMENTS = "judgements.jsonl"
GRADES = (0, 1, 2, 3)  # as in UMBRELA: unrelated; related, but no answer; a partial answer; a full answer
HUMAN, LLM, ADJUDICATED = "human", "llm", "adjudicated"
BASES = (ADJUDICATED, HUMAN, LLM)  # Each kind of judge overrides the kinds after it.
SAMPLES = ("audit", "repair", "all", "")  # why people judged a pair; "" for models. Only `audit` enters estimates.

Pair = tuple[str, str | None]  # query_id, doc_id (None: the query's need for retrieval)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judgement of a query and a document, or of a query's need for retrieval.

    text: `text_digest` of the query as it was judged.
    doc_id: if None, the judgement is about the query's need for retrieval, and its value is `needs` instead of `grade`.
    grade: 0 to 3; None if the judge cannot tell, which leaves an open question.
    by: `human:NAME`, `llm:MODEL#PROMPT` (PROMPT: first digits of the prompt's sha256) or `adjudicated:NAME`.
    at: time in ISO 8601 and UTC, such as 2026-11-22T09:30:00Z.
    round: 2 if the pair is deliberately judged a second time, to measure agreement.
    sample: one of SAMPLES.
    pi: probability that the query was drawn; 1 if nothing was drawn.
    blind: whether the judge saw no other judgements, ranks, scores or names of retrievers.
    quote: the passage that supports the grade, or "".
    """

    query_id: str
    text: str
    doc_id: str | None
    grade: int | None
    by: str
    at: str
    needs: bool | None = None
    round: int = 1
    sample: str = ""
    pi: float = 1.0
    blind: bool = True
    quote: str = ""
    withdrawn: bool = False

    def __post_init__(self) -> None:
        if self.basis not in BASES or not self.judge:
            raise ValueError(f"by is {self.by!r:.60}, but must be human:NAME, llm:MODEL#PROMPT or adjudicated:NAME.")
        for name, known in (("grade", (None, *GRADES)), ("round", (1, 2)), ("sample", SAMPLES)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} is {value!r:.60}, but must be one of {known}.")
        if not 0 < self.pi <= 1:
            raise ValueError(f"pi is {self.pi!r}, but a probability above 0 and up to 1 is needed.")

    @property
    def pair(self) -> Pair:
        return self.query_id, self.doc_id

    @property
    def basis(self) -> str:
        """Return the kind of the judge: one of BASES."""
        return self.by.partition(":")[0]

    @property
    def judge(self) -> str:
        return self.by.partition(":")[2]


def text_digest(query: Query) -> str:
    """Return 12 hexadecimal digits of the sha256 of a query's turns. If a query's turns change, its earlier
    judgements no longer count."""
    turns = [[turn.role, turn.content] for turn in query.turns]
    return hashlib.sha256(json.dumps(turns, ensure_ascii=False).encode()).hexdigest()[:12]


def judged_now() -> str:
    """Return the present time in the format of `Judgement.at`."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


class JudgementLog(AppendLog[Judgement]):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder / JUDGEMENTS, Judgement, sync="row")


def current(judgements: Iterable[Judgement], queries: Mapping[str, Query]) -> list[Judgement]:
    """Return the judgements that count: the last one of each judge, pair and round, unless it is withdrawn. Judgements
    of an earlier text of a query do not count. queries: the test set's queries by id."""
    digests = {query_id: text_digest(query) for query_id, query in queries.items()}
    last: dict[tuple[Pair, str, int], Judgement] = {}
    for one in judgements:
        if digests.get(one.query_id) == one.text:
            key = one.pair, one.by, one.round
            last.pop(key, None)
            last[key] = one
    return [one for one in last.values() if not one.withdrawn]


def by_pair(judgements: Sequence[Judgement]) -> dict[Pair, list[Judgement]]:
    found: dict[Pair, list[Judgement]] = {}
    for one in judgements:
        found.setdefault(one.pair, []).append(one)
    return found


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """A test set with its pool and the judgements that count. queries: queries by id. judgements: from `current`."""

    queries: Mapping[str, EvidencedQuery]
    pairs: Sequence[PooledPair]
    judgements: Sequence[Judgement]

    @cached_property
    def pooled(self) -> Mapping[str, Sequence[PooledPair]]:
        """Return query_id -> pooled pairs, for all queries."""
        return pairs_by_query(self.queries, self.pairs)

    @cached_property
    def of_people(self) -> Mapping[Pair, Sequence[Judgement]]:
        """Return pair -> judgements by people, of both rounds and including adjudications."""
        return by_pair([one for one in self.judgements if one.basis != LLM])

    @cached_property
    def of_models(self) -> Mapping[Pair, Sequence[Judgement]]:
        """Return pair -> judgements by models, oldest first."""
        return by_pair([one for one in self.judgements if one.basis == LLM])

    def first_round(self, pair: Pair, audit: bool = False) -> list[Judgement]:
        """Return people's judgements of a pair in the first round. audit: return only those for the audit."""
        return [one for one in self.of_people.get(pair, ()) if one.round == 1 and (not audit or one.sample == "audit")]

    def unneeded(self, query_id: str) -> bool:
        """Return whether the query needs no retrieval: by the last adjudication, otherwise by people's consensus."""
        said = self.first_round((query_id, None))
        deciding = [one for one in said if one.basis == ADJUDICATED][-1:] or said
        return bool(deciding) and all(one.needs is False for one in deciding)

    def checked(self, query_id: str) -> bool:
        """Return whether people have judged a query in full for the audit: its need for retrieval and, if it needs
        retrieval, all of its pooled pairs."""
        if not self.first_round((query_id, None), audit=True):
            return False
        pairs = () if self.unneeded(query_id) else self.pooled[query_id]
        return all(self.first_round((query_id, one.doc_id), audit=True) for one in pairs)


def read_judged_set(folder: Path) -> JudgedSet:
    """Read a test set, its pool and its judgements. Leave out pairs and judgements made when their query had
    another text. Raise BadInput if a file is wrong."""
    queries = {one.query.query_id: one for one in read_queries(folder, "testset")}
    texts = {query_id: text_digest(one.query) for query_id, one in queries.items()}
    pool = read_pool(folder)
    pairs = [one for one in pool.pairs if texts.get(one.query_id) == pool.about.queries[one.query_id]]
    log = JudgementLog(folder).read()
    return JudgedSet(queries, pairs, current(log, {query_id: one.query for query_id, one in queries.items()}))


def held(folder: Path, file: str, does: str) -> AbstractContextManager[None]:
    """Hold the lock of a test set's file. does: what the holder does, as a verb for messages, such as "judges"."""
    return locked(folder / f".{file}.lock", f"{does} this test set")
