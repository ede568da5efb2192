"""Who has judged what: an append-only file, `judgements.jsonl`, which every label comes from.

Each line is a `Judgement`, and is on the disk before `append` returns. Nothing is ever changed: a later judgement by
the same judge of the same pair in the same round replaces the earlier one, and `withdrawn` takes it back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.storage.append_log import AppendLog
from retrievers.base import Query

JUDGEMENTS = "judgements.jsonl"
GRADES = (0, 1, 2, 3)  # UMBRELA's: unrelated, related without an answer, answers in part, answers
HUMAN, LLM, ADJUDICATED = "human", "llm", "adjudicated"
BASES = (ADJUDICATED, HUMAN, LLM)  # the first decides
SAMPLES = ("audit", "repair", "all", "")  # why a pair was judged; only `audit` enters estimates. "": by a model

Pair = tuple[str, str | None]  # query_id, doc_id; None: whether the query needs retrieval


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one judge says of one pair of a query and a document, or of a query's need for retrieval.

    query_id, text: the query, and `text_digest` of it as it was judged.
    doc_id: None: the judgement is of the query's need for retrieval, in `needs`; otherwise it is in `grade`.
    grade: 0 to 3; None: the judge cannot tell, which is an open question.
    by: `human:NAME`, `llm:MODEL#PROMPT` (the beginning of the sha256 of the prompt) or `adjudicated:NAME`.
    round: 2 where the same pair is judged a second time on purpose, to see whether people agree with themselves.
    sample: of SAMPLES. pi: the probability with which the query was drawn; 1 where nothing was drawn.
    blind: whether the judge saw no other judgement, rank, score or name of a retriever.
    quote: the passage that the judge rests the grade on; "" if none.
    at: when, as ISO 8601 in UTC, such as 2026-11-22T09:30:00Z.
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
        """Of BASES: what kind of judge this is."""
        return self.by.partition(":")[0]

    @property
    def judge(self) -> str:
        """The name of the person or model."""
        return self.by.partition(":")[2]


def text_digest(query: Query) -> str:
    """12 hexadecimal digits of the sha256 of a query's turns: a judgement holds for the text that was judged alone."""
    turns = [[turn.role, turn.content] for turn in query.turns]
    return hashlib.sha256(json.dumps(turns, ensure_ascii=False).encode()).hexdigest()[:12]


class JudgementLog(AppendLog[Judgement]):
    """The judgements of a test set. folder: of the test set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / JUDGEMENTS, Judgement, sync="row")


def current(judgements: Iterable[Judgement], queries: Mapping[str, Query]) -> list[Judgement]:
    """The judgements that hold: the last of each judge, pair and round, unless withdrawn, of queries as they are now.

    queries: query_id -> query, of the test set.
    """
    digests = {query_id: text_digest(query) for query_id, query in queries.items()}
    last: dict[tuple[Pair, str, int], Judgement] = {}
    for one in judgements:
        if digests.get(one.query_id) == one.text:
            key = one.pair, one.by, one.round
            last.pop(key, None)
            last[key] = one
    return [one for one in last.values() if not one.withdrawn]


def by_pair(judgements: Sequence[Judgement]) -> dict[Pair, list[Judgement]]:
    """Pair -> its judgements, in their order."""
    found: dict[Pair, list[Judgement]] = {}
    for one in judgements:
        found.setdefault(one.pair, []).append(one)
    return found
