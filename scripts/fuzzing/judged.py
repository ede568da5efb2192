"""Formats of a judged test set: what was pooled, and who has judged what."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from fuzzing.formats import Files, Format, logged, reads, same
from harness.data.testset import EvidencedQuery
from harness.evaluation import checked_values
from harness.evaluation.proportions import Proportion
from harness.storage.append_log import START
from harness.testset import pool as pools
from harness.testset.audit_sample import AuditSample, draw, read_audit
from harness.testset.judge_record import JudgeRecord, read_records, write_record
from harness.testset.judged_set import JudgedSet
from harness.testset.judgements import Judgement, JudgementLog, by_pair, current
from harness.testset.pool import About, Pool, PooledPair, PooledRun
from harness.testset.review_items import items
from harness.testset.workbook import Questions, write_workbook
from harness.testset.workbook_reader import read_workbook
from retrievers.base import Document, Query

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


ONE = Judgement("7", "ab", "d1", 2, "human:kim", "2026-11-22T09:30:00Z")
MORE = dataclasses.replace(ONE, round=2, sample="audit", pi=0.5, quote="달", withdrawn=True)
NEEDS = dataclasses.replace(ONE, doc_id=None, grade=None, needs=False, by="adjudicated:lee")
NEW = Judgement("7", "ab", "d9", 3, "llm:tiny#0123", "2026-11-22T09:31:00Z")


@reads("judgements", logged("judgements.jsonl", JudgementLog, ONE, MORE, NEEDS), JUDGED, changes=True)
def _judgements(folder: Path) -> None:
    log = JudgementLog(folder)
    read = log.read()
    by_pair(current(read, {"7": Query.of("7", "달")}))
    log.append([NEW])
    same(log.read(), [*read, NEW], "the judgements")
    same(log.since(START)[0], [*read, NEW], "the judgements that are followed")


ASKED = {"q1": "달은?", "q2": "=1+1", "q3": "안녕"}
STATE = JudgedSet(
    {one: EvidencedQuery(Query.of(one, text), "fact", (), "queries.jsonl:1") for one, text in ASKED.items()},
    [PooledPair(query_id, doc_id, {"a1": 1}) for query_id in ASKED for doc_id in ("d1", "d2")],
    (),
)


def _drawn() -> Files:
    with tempfile.TemporaryDirectory() as name:
        draw(Path(name), STATE, 2, 0)
        return {"audit.json": (Path(name) / "audit.json").read_bytes()}


@reads("audit", _drawn, JUDGED, changes=True)
def _audit(folder: Path) -> None:
    read = read_audit(folder)
    assert read is None or read.seed >= 0
    sample = draw(folder, STATE, 3, read.seed if read else 0)
    same(read_audit(folder), sample, "the sample")
    items("audit", "kim", STATE, sample)


SAMPLE = AuditSample(dict.fromkeys(ASKED, "fact"), tuple(ASKED), frozenset(["q1"]))


def _filled_in() -> Files:
    from openpyxl import load_workbook

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "filled.xlsx"
        documents = {doc_id: Document(doc_id, f"+ 달은 {doc_id}", "제목") for doc_id in ("d1", "d2")}
        asked = items("audit", "kim", STATE, SAMPLE).items
        queries = {query_id: one.query for query_id, one in STATE.queries.items()}
        write_workbook(path, Questions("human:kim", "audit", asked, queries, documents, "docs/documents.jsonl"))
        book = load_workbook(path)
        for title, value in (("queries", "no"), ("pairs", 2)):
            for row in range(2, book[title].max_row + 1):
                book[title].cell(row, book[title].max_column).value = value
        book.save(path)
        return {"filled.xlsx": path.read_bytes()}


@reads("workbook", _filled_in, JUDGED)
def _workbook(folder: Path) -> None:
    found = read_workbook(folder / "filled.xlsx", "kim", STATE, SAMPLE, "2026-11-22T09:30:00Z")
    assert found.changed == found.same == found.kept == 0
    assert len(found.new) + found.empty <= 9
    assert all(one.grade in (0, 1, 2, 3, None) and one.pi == 1 for one in found.new)


RECORD = JudgeRecord(
    by="llm:tiny#0123abcd",
    model="tiny",
    base_url="http://localhost:1/v1",
    prompt="0123abcd" * 8,
    language="ko",
    at="2026-11-22T09:31:00Z",
    grades={"0": 3, "1": 2, "2": 1, "3": 4, "null": 1},
    seeds=Proportion(3, 4),
    controls={"seed": Proportion(3, 4), "stuffed": Proportion(0, 4)},
    warnings=("The judge misses answers.",),
    usage={"requests": 19, "cost": None},
)


def _recorded() -> Files:
    with tempfile.TemporaryDirectory() as name:
        write_record(Path(name), RECORD)
        return {"judge.json": (Path(name) / "judge.json").read_bytes()}


@reads("judge record", _recorded, JUDGED, changes=True)
def _judge_record(folder: Path) -> None:
    """The record of one judge changes no other's."""
    read = read_records(folder)
    new = dataclasses.replace(RECORD, by="llm:new#4567cdef", seeds=None)
    write_record(folder, new)
    same(read_records(folder), {**read, new.by: new}, "the records")


CHECKED = (b"query_id,stratum,checked,people/mrr,model/mrr,unjudged/mrr,people/hit@1,model/hit@1,unjudged/hit@1\n"
           b"5,fact,1,0.5,1.0,0.0,0.0,1.0,1.0\n7,fact,0,,0.25,,,0.0,\nq3,none,1,,,0.0,,,0.0\n")  # fmt: skip


@reads("checked.csv", {"checked.csv": CHECKED}, JUDGED, changes=True)
def _checked(folder: Path) -> None:
    read = checked_values.read_table(folder / "checked.csv")
    read.estimates()
    (folder / "again.csv").write_text(checked_values.table_text(read), "utf-8")
    same(checked_values.read_table(folder / "again.csv").query_ids, read.query_ids, "the queries")
