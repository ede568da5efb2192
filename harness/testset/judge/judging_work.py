"""What is to be judged of a test set, and what its judges have said so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.commands import JudgeConfig
from harness.config.text import counted
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import some
from harness.data.testset import KINDS, EvidencedQuery, read_queries
from harness.errors import BadInput
from harness.llm.chat import Prompt
from harness.statistics.agreement import Proportion
from harness.testset.draft.prompts import language_of
from harness.testset.judge import judge_record
from harness.testset.judge.judge_record import GRADE_NAMES, OPEN, Control
from harness.testset.judge.judgements import JudgedSet, Judgement, JudgementLog, Pair, current, text_digest
from harness.testset.judge.judging import Judge, Verdict, check_conversations, read_judge_prompt
from harness.testset.pool.pool import Pool, PooledPair, pooled_documents, read_pool
from harness.testset.review.resolution import RELEVANT_FROM
from retrievers.base import Document

LOOKED_AT = 100  # documents that decide the language of the prompt
NO_NEED = "none"  # the kind of queries that need no retrieval: no document answers them


@dataclass(frozen=True)
class JudgingWork:
    """All that is to be judged.

    judge: who judges. language: ko or en, of the shipped prompt; "" for one of the user's.
    judged: the test set as far as it is judged, without queries that need no retrieval.
    pending: pooled pairs that no model has judged, as far as they are to be judged now. left: how many more there are.
    controls: the hidden controls. documents: doc_id -> document, of everything that is or was judged by this judge.
    """

    folder: Path
    pool: Pool
    judge: Judge
    language: str
    judged: JudgedSet
    pending: Sequence[PooledPair]
    left: int
    controls: Sequence[Control]
    documents: Mapping[str, Document]

    @property
    def prompts(self) -> list[Prompt]:
        """The requests: for pairs, then for controls."""
        return self.asked(self.pending) + [self.judge.asked(one.query, one.document) for one in self.controls]

    @property
    def before(self) -> list[PooledPair]:
        """Pooled pairs that this judge has judged already."""
        return [pair for pair in self.judged.pairs if _said(self.judged, pair, self.judge.by)]

    @property
    def others(self) -> int:
        """The number of pooled pairs that only other models have judged."""
        by_models = sum((pair.query_id, pair.doc_id) in self.judged.of_models for pair in self.judged.pairs)
        return by_models - len(self.before)

    def asked(self, pairs: Iterable[PooledPair]) -> list[Prompt]:
        """The requests for pairs."""
        queries = self.judged.queries
        return [self.judge.asked(queries[pair.query_id].query, self.documents[pair.doc_id]) for pair in pairs]

    def judgements(self, verdicts: Sequence[Verdict], at: str) -> list[Judgement]:
        """The judgements of the pending pairs. verdicts: of `prompts`. at: when."""
        return [
            Judgement(
                query_id=pair.query_id,
                text=text_digest(self.judged.queries[pair.query_id].query),
                doc_id=pair.doc_id,
                grade=one.grade,
                by=self.judge.by,
                at=at,
                quote=one.quote,
            )
            for pair, one in zip(self.pending, verdicts, strict=False)
        ]


@dataclass(frozen=True)
class Tally:
    """What one judge has said of the pooled pairs.

    kinds: kind of query -> grade, of GRADE_NAMES -> number of pairs. seeds: of the documents that have the evidence of
    their query, those graded relevant; None without any. answered: ids of `unanswerable` queries for which a document
    is graded relevant.
    """

    kinds: Mapping[str, Mapping[str, int]]
    seeds: Proportion | None
    answered: Sequence[str]

    @property
    def grades(self) -> dict[str, int]:
        """Of GRADE_NAMES -> number of pairs."""
        return {grade: sum(counts[grade] for counts in self.kinds.values()) for grade in GRADE_NAMES}


def tally(judged: JudgedSet, by: str) -> Tally:
    """What one judge has said of the pooled pairs."""
    kinds: dict[str, Counter[str]] = {}
    seeds: list[bool] = []
    answered: dict[str, None] = {}
    for pair in judged.pairs:
        for said in _said(judged, pair, by):
            kind = judged.queries[pair.query_id].kind
            kinds.setdefault(kind, Counter())[OPEN if said.grade is None else str(said.grade)] += 1
            relevant = said.grade is not None and said.grade >= RELEVANT_FROM
            if pair.seed:
                seeds.append(relevant)
            if relevant and kind == "unanswerable":
                answered[pair.query_id] = None
    return Tally(
        {kind: {grade: kinds[kind][grade] for grade in GRADE_NAMES} for kind in KINDS if kind in kinds},
        Proportion(sum(seeds), len(seeds)) if seeds else None,
        [*answered],
    )


def work(config: JudgeConfig) -> JudgingWork:
    """Return what is to be judged. Raise BadInput unless the pool is that of the test set and its documents now."""
    folder = config.testset
    queries = {one.query.query_id: one for one in read_queries(folder, "testset")}
    pool = read_pool(folder)
    documents = pooled_documents(folder, config.documents)
    _check(folder, pool, queries, documents)
    needed = {query_id: one for query_id, one in queries.items() if one.kind != NO_NEED}
    asked = {query_id: one.query for query_id, one in needed.items()}
    pairs = [pair for pair in pool.pairs if pair.query_id in needed]
    judged = JudgedSet(needed, pairs, current(JudgementLog(folder).read(), asked))
    texts = {chunk.document.doc_id: frozenset(span.text for span in chunk.spans) for chunk in documents.chunks()}
    if lacking := {pair.doc_id for pair in pool.pairs if pair.doc_id not in texts}:
        raise BadInput(
            f"testset={folder}: {counted(len(lacking), 'pooled document')} ({some(sorted(lacking))}) are not in "
            "the documents folder. Was pool.jsonl edited? Pool again with `harness testset pool`."
        )
    pending = [pair for pair in pairs if (pair.query_id, pair.doc_id) not in judged.of_models]
    places = judge_record.places(pairs, needed, texts, config.judge.controls)
    pooled = {pair.doc_id for pair in pairs}
    shown = pooled | {one.other for one in places if one.other is not None}
    found = {chunk.document.doc_id: chunk.document for chunk in documents.chunks() if chunk.document.doc_id in shown}
    language = str(config.language)
    if language == "auto":
        language = language_of("\n".join(found[doc_id].text for doc_id in sorted(pooled)[:LOOKED_AT]))
    judge = Judge(config.llm["model"], read_judge_prompt(language, config.prompt))
    check_conversations(judge.prompt, [asked[query_id] for query_id in dict.fromkeys(pair.query_id for pair in pairs)])
    kept = pending[: config.limit]
    made = judge_record.controls(places, asked, found)
    if not kept and not any(one.by == judge.by for one in judged.judgements):
        made = []  # this judge has nothing to do with the test set
    language = "" if config.prompt else language
    return JudgingWork(folder, pool, judge, language, judged, kept, len(pending) - len(kept), made, found)


def _said(judged: JudgedSet, pair: PooledPair, by: str) -> list[Judgement]:
    """What a judge has said of a pair: one judgement or none."""
    key: Pair = pair.query_id, pair.doc_id
    return [one for one in judged.of_models.get(key, ()) if one.by == by][-1:]


def _check(folder: Path, pool: Pool, queries: Mapping[str, EvidencedQuery], documents: DocumentsFolder) -> None:
    """BadInput unless the pool was made of these queries and documents."""
    again = f"Run `harness testset pool testset={folder} ...` again, which keeps all judgements."
    if documents.fingerprint != pool.about.documents_sha256:
        raise BadInput(
            f"testset={folder} was pooled from other documents than those in {documents.path}. Give those that were "
            f"pooled (documents=FOLDER), or pool again. {again}"
        )
    now, then = {query_id: text_digest(one.query) for query_id, one in queries.items()}, pool.about.queries
    for what, found in {
        "changed": [query_id for query_id, text in then.items() if now.get(query_id, text) != text],
        "been added": [query_id for query_id in now if query_id not in then],
        "been taken out": [query_id for query_id in then if query_id not in now],
    }.items():
        if found:
            these = f"{counted(len(found), 'query')} ({some(found)}) {'has' if len(found) == 1 else 'have'}"
            raise BadInput(f"testset={folder}: {these} {what} since the pool was made. {again}")
