"""Formats of files that the harness writes, and of replies of services."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from frozen_sets import frozen, judged, sealed
from judged_sets import judged_set
from stand_ins import fill_in

from fuzzing.brought import CONTEST, CORRECTED, REFERENCES, ROWS, TALK, as_csv, toy
from fuzzing.trial import Files, Wrong, again, each, lines, reads, same, text_again, written
from harness.analysis.board import runs as board_runs
from harness.analysis.board.lists import ListReader
from harness.analysis.board.queries import Collected, ReadAgain
from harness.analysis.board.runs import read_submissions
from harness.analysis.comparison.scored_runs import TaskRuns, compare_runs, read_retrieval_runs
from harness.analysis.ranking import Chosen, RankedRun
from harness.commands.export.ledger import Export, LeaderboardAnswer, Ledger, LedgerLine, Pending
from harness.config.commands import CompareConfig, ReproduceConfig
from harness.config.composing import compose
from harness.data import tables
from harness.data.dataset import checked_dataset
from harness.data.files import open_unpacked
from harness.data.frozen import Frozen
from harness.data.shards import CorpusWriter, ShardedDocuments, ShardWriter, fingerprint_row
from harness.data.testset import EvidencedQuery
from harness.errors import BadInput
from harness.fusion.rule import FittedFusion, FusionRule
from harness.gates.llm import read_answer
from harness.gates.rule import FittedGate, Rule
from harness.llm.chat import ChatModel, _completion
from harness.llm.structured import WrongReply
from harness.measures import checked_values
from harness.measures.objective import Objective
from harness.measures.score_table import read_score_table
from harness.recording import provenance, recording, task_run
from harness.recording.logged_run import Ahead, in_full, read_config
from harness.recording.repeating import repeating_config
from harness.recording.run_kind import RunKind
from harness.statistics.agreement import Proportion
from harness.statistics.prediction_powered import Estimate
from harness.storage import cache as caches
from harness.storage import entries
from harness.storage.typed import encoded, row_as
from harness.sweeps.auto.budget import StepLog
from harness.sweeps.trials import Context, EndedTrial, read_journal, write_journal
from harness.testset.audit.auditing import AuditSample, draw, read_audit
from harness.testset.draft.drafting import read_as
from harness.testset.freeze import freezing
from harness.testset.judge.judge_record import JudgeRecord, read_records, write_record
from harness.testset.judge.judgements import JudgedSet, Judgement, JudgementLog, by_pair, current
from harness.testset.pool import pool as pools
from harness.testset.pool.pool import PooledPair
from harness.testset.review.desk import items
from harness.testset.review.workbook import Questions, read_workbook, write_workbook
from harness.tracking import file_hashes, mlflow_client, outbox
from harness.tracking.tracker import EndedRun, Input, LoggedRun, NoFile, RunRecord, Tracker
from harness.tracking.write_only import CsvTracker
from retrievers.base import Document, Query, Ranking
from retrievers.external.http import HttpRetriever
from retrievers.external.http_client import FailedAttempt, HttpClient, HttpReply, HttpRequest

COMPARED = {"resamples": 100, "seed": 0, "pairs": "best", "select_on": "all"}  # of a comparison

# Files of runs

SCORES = (b"query_id,needs,multi_turn,public,loss,modified_map@3,mrr,oof/modified_map@3,oof/mrr\n"
          b"5,0,0,1,,1.0,,1.0,\n7,1,0,0,not_found,0.5,0.5,0.25,0.5\nq3,1,1,1,misranked,0.25,1.0,0.5,1.0\n")  # fmt: skip
ITEMS = {"id": ["s1", "s2"], "kind": ["a", 'b\r"'], "source": ["x", "y"], "reference": ["x\n", ""],
         "prediction": ["x", "z"]}  # fmt: skip
TALLIES = {"id": ["s1", "s2"], "kind": ["a", 'b\r"'], "public": [1, 0], "tp": [1.0, 0.0], "fp": [0.0, 1.0],
           "fn": [0.0, 1.0], "fr": [0.0, 0.0]}  # fmt: skip
TRIALS = {"trial": [0, 1], "status": ["FINISHED", "FAILED"], "map": [0.5, None], "error": ["", "a\rb"]}
CHECKED = (b"query_id,stratum,checked,people/mrr,model/mrr,unjudged/mrr\n5,fact,1,0.5,1.0,0.0\n7,fact,0,,0.25,\n"
           b"q3,none,1,,,0.0\n")  # fmt: skip
TABLES = {"scores.csv": SCORES, "checked.csv": CHECKED, "items.csv": tables.csv_text(ITEMS).encode()}
TABLES |= dict.fromkeys(("runs.csv", "trials.csv"), tables.csv_text(TRIALS).encode())


@reads("tables", TABLES)
def _tables(folder: Path) -> None:
    read_score_table(folder / "scores.csv", "mrr")
    for name in ("trials.csv", "items.csv"):
        columns = tables.read_columns(folder / name)
        text_again(tables.csv_text(columns), tables.read_columns, columns, name)
    CsvTracker().connect(folder)
    read = checked_values.read_checked_table(folder / "checked.csv")
    read.estimates()
    once_more = lambda path: checked_values.read_checked_table(path).query_ids  # noqa: E731
    text_again(checked_values.checked_table_text(read), once_more, read.query_ids, "checked.csv")


RULE = {"features": [["bm25", "top_score"], [None, "query_words"]], "k": 10, "levels": [3, 0], "thresholds": ["-inf"],
        "centre": [0.5, 1], "scale": [1.0, 2], "weights": [0.1, -1], "intercept": -1.5, "embedding": [0.1, 2],
        "embedding_centre": [0, 0], "embedding_scale": [1, 1]}  # fmt: skip
GATE = {"rule": RULE, "objective": "map", "notes": []}
RANKING = Ranking.from_scores({"q1": {"d1": 2.0, "d2": 1.0}, "q2": {}})


class _Inputs:
    queries = conversations = (Query.of("q1", "two words"), Query.of("q2", "x"))
    rankings: Mapping[str, Ranking] = {"bm25": RANKING}

    def __getattr__(self, name: str) -> Any:
        raise BadInput("gate.json: this signal needs more than the fuzzer has")


FEATURES = [{"ranking": "bm25", "feature": "z_score", "weight": 0.7},
            {"ranking": "bigram", "feature": "returned", "weight": -1}]  # fmt: skip
FUSION = {"version": 1, "rule": {"rankings": ["bigram", "bm25"], "features": FEATURES}, "notes": []}


@reads("rules", {"gate.json": json.dumps(GATE).encode(), "fusion.json": json.dumps(FUSION).encode()})
def _rules(folder: Path) -> None:
    rule = FittedGate(str(folder / "gate.json")).rule
    same(Rule.from_json(json.loads(json.dumps(rule.to_json()))), rule, "the rule")
    try:
        rule.check(["bm25"])
    except BadInput as error:  # about names
        raise BadInput(f"gate.json: {error}") from None
    plain = dataclasses.replace(rule, embedding=(), embedding_centre=(), embedding_scale=())
    with np.errstate(over="ignore", invalid="ignore"):  # coefficients up to the largest number
        rule.shown(plain.signal(_Inputs()))  # type: ignore[arg-type]
    fusion = FittedFusion(str(folder / "fusion.json")).rule
    same(row_as(FusionRule, json.loads(json.dumps(encoded(fusion))), "rule"), fusion, "the rule")
    fusion.fuse(dict.fromkeys(fusion.rankings, RANKING), 2)


class Folder(Tracker):
    def download(self, run: LoggedRun, name: str, folder: Path) -> Path:
        if not (file := Path(run.run_id) / name).is_file():
            raise NoFile(f"Run {run.run_id} has no file {name!r}. Choose another run.")
        return file


def _run_of(name: str, **tags: str) -> LoggedRun:
    params = {"dataset": "contest", "predictions": "P.jsonl", "gate": "auto"}
    return LoggedRun(name, name, "e", "FINISHED", {}, params, tags)


TREC = b"7 Q0 d1 1 1.5 x\n7 Q0 3 2 1 x\nq3 Q0 d2 1 0.25 x\n"
TABLE = {"columns": ["query_id", "signal", "kept"], "data": [["7", 1.5, True], ["q3", None, False]]}
LISTS = {"run.trec": TREC, "queries.json": json.dumps(TABLE).encode(), "gate.json": json.dumps(GATE).encode()}


def _logged() -> Files:
    config, _ = compose("run", ("dataset=contest", "dataset.path=data", "tracking=none"))
    files = {"config.yaml": provenance.resolved(config).encode(), "predictions.jsonl": ROWS, "scores.csv": SCORES,
             "metrics.json": b'{"metrics": {"mrr": 0.5, "map": 1}}', **LISTS}  # fmt: skip
    made = {f"{run}/{name}": content for run in "ab" for name, content in files.items()}
    made["b/predictions.jsonl"] = ROWS.replace('"content": "달'.encode(), '"x": "달'.encode())  # texts are read again
    made["b/scores.csv"] = SCORES.replace(b"0.5,0.5,0.25", b"1.0,0.5,0.75")
    return made | {f"data/{name}": content for name, content in CONTEST.items()}


_FILES = ("config.yaml", "metrics.json", "predictions.jsonl", "scores.csv", *LISTS)
_FIXED = [*(f"data/{one}" for one in CONTEST), *(f"a/{one}" for one in _FILES)]


@reads("retrieval run", _logged, fixed=frozenset(_FIXED), named=False)
def _retrieval(folder: Path) -> None:
    tags = {f"data.{name}": str(sha256) for name, sha256 in toy().fingerprints.items()}
    a, b = (_run_of(name, **tags, **{"harness.verb": "run"}) for name in "ab")
    tracker: Any = Folder()
    config = read_config(folder / "b" / "config.yaml")
    said = provenance.resolved(config)
    text_again(said, lambda path: provenance.resolved(read_config(path)), said, "config.yaml")
    places = ReproduceConfig.of(compose("reproduce", (), True)[0])
    with contextlib.suppress(BadInput):
        each(
            lambda: repeating_config(b, config, places),
            lambda: in_full(tracker, b),
            lambda: RunKind().validated(tracker, b, None),
        )
    with tempfile.TemporaryDirectory() as name:
        runs = read_retrieval_runs(tracker, {"A": a, "B": b}, Path(name))
        compare_runs(runs, CompareConfig.of({"metric": "modified_map@3", **COMPARED}))
        ranked = [RankedRun(run, Objective("mrr", 0.5)) for run in (a, b)]
        board = board_runs.of_chosen(tracker, Chosen("all", ranked), "mrr", Path(name))
        reader, collected = ListReader(Ahead(tracker, [], Path(name))), Collected(board, [ReadAgain()] * 2)
        for at, run in enumerate((a, b)):
            collected.add(at, 0, reader.returned(run) or {}, reader.retrieved(run))
        json.dumps(collected.details([reader.gate(run) for run in (a, b)], []), allow_nan=False)


def _task_files() -> Files:
    config, _ = compose("score", ("task=corrections", "references=R.csv", "predictions=P.csv", "tracking=none"))
    kept = ("task", "references", "predictions", "seed", "public", "metrics", "objective")
    files = {
        "config.yaml": provenance.resolved({name: config[name] for name in kept}).encode(),
        "items.csv": tables.csv_text(ITEMS).encode(),
        "tallies.csv": tables.csv_text(TALLIES).encode(),
    }
    made = {f"{run}/{name}": content for run in "ab" for name, content in files.items()}
    return made | {"R.csv": as_csv(REFERENCES), "b/predictions.jsonl": lines(*CORRECTED)}


@reads("text task run", _task_files, fixed=frozenset({"a/config.yaml", "a/items.csv", "a/tallies.csv"}), named=False)
def _task_run(folder: Path) -> None:
    tracker: Any = Folder()
    with contextlib.suppress(BadInput):
        task_run.validated(tracker, _run_of("b"))
    with tempfile.TemporaryDirectory() as name:
        found = read_submissions(tracker, [_run_of("a"), _run_of("b")], Path(name))
        compare_runs(TaskRuns(["A", "B"], found), CompareConfig.of({"metric": "correction_recall", **COMPARED}))


LOGGED = {"scores.csv": b"query_id,map\n1,0.5\n", "run.trec": TREC}
HASHES = json.dumps({name: hashlib.sha256(content).hexdigest() for name, content in LOGGED.items()}).encode()


@reads("hashes of files", LOGGED | {"tag.json": HASHES}, named=False)
def _hashes(folder: Path) -> None:
    """Accept a file as the run has logged it, or a tag that was made for another file."""
    tag = _text(folder / "tag.json") or "{}"
    run = LoggedRun("a" * 32, "a", "e", "FINISHED", {}, {}, {file_hashes.FILE_HASHES: tag})
    for name, before in LOGGED.items():
        read = file_hashes.fetch_verified(run, name, partial(Folder().download, run, str(folder / name), folder))
        with open_unpacked(read) as file:  # unpacks what is packed
            if tag == HASHES.decode() and file.read() != before:
                raise Wrong("an edited file is believed", name)


# Logs of sweeps and exports, and waiting runs

TOKEN = "0123456789abcdef"
OBJECTIVE = Objective("x", 0.5, 0.4, 0.6, estimate=Estimate(0.5, 0.4, 0.6, 30, 70, 0.9))
OF_TRIAL = RunRecord("e", "k=1", {"k": 1}, {"trial_key": "k"}, {file_hashes.FILE_HASHES: "{}"}, {"map": 0.5}, OBJECTIVE)


def _sweep(folder: Path) -> Context:
    return Context("s", "e", folder, TOKEN, {})


def _append(folder: Path, ended: EndedTrial) -> None:
    (folder / "owner").write_text(TOKEN)
    (files := folder / "trials" / "x").mkdir(parents=True)
    write_journal(_sweep(folder), [(ended, files)])


def _results(folder: Path) -> None:
    _append(folder, EndedTrial(0, EndedRun("a" * 32, "FINISHED", OF_TRIAL), 0.1))
    _append(folder, EndedTrial(1, EndedRun("b" * 32, "FAILED", OF_TRIAL), 0.1, "no"))
    log = StepLog(folder / "steps.jsonl")
    log.note("system retriever=bm25", 2.5, 2.0)
    log.note("replay 0", 9.0)


@reads("journal", written(_results))
def _journal(folder: Path) -> None:
    context = _sweep(folder)
    trials, end = read_journal(context)
    read_journal(context, end)
    for one in trials:
        one.result()

    def write(into: Path) -> None:
        for one in trials:
            _append(into, one)

    again(write, lambda into: repr(read_journal(_sweep(into))[0]), repr(trials), "the journal")
    log = StepLog(folder / "steps.jsonl")
    if not (log.pace > 0 and log.spent >= 0 and log.seconds("system") >= 0):
        raise Wrong("a time is not a number", repr((log.pace, log.spent)))


EXPORT = Export("2026-07-01T12:30:00.000000+00:00", "ab" * 32, "best.csv", "a" * 32, "run", "e", "map", "t", value=0.5)
ANSWER = LeaderboardAnswer("2026-07-02T12:30:00.000000+00:00", "ab" * 32, "best.csv", public=0.8)
PENDING = {
    "2026": Pending(LedgerLine(answer=dataclasses.replace(ANSWER, private=0.7))),
    "2027": Pending(LedgerLine(export=dataclasses.replace(EXPORT, file="other.csv")), "{}\n"),
}


def _submitted(folder: Path) -> None:
    with (ledger := Ledger(folder)).locked():
        ledger._add(LedgerLine(export=EXPORT), LedgerLine(answer=ANSWER))
    for name, one in PENDING.items():
        (ledger.pending / f"{name}.json").write_bytes(lines(dataclasses.asdict(one)))


@reads("ledger", written(_submitted, "submissions/"), changes=True)
def _ledger(folder: Path) -> None:
    ledger = Ledger(folder / "submissions")
    with ledger.locked():
        ledger.settle(Tracker())  # type: ignore[arg-type]
    assert all(one.about and one.runs for one in ledger.submissions().values())


UNFINISHED = "runs/2026.unfinished/config.yaml"


def _claims() -> Files:
    with tempfile.TemporaryDirectory() as name:
        claim = recording.claim_work(Path(name), recording.ProcessWork())
        claim.unlock()
    work = {"folder": "runs/2026.unfinished", "scratch": False, "experiment": "e", "store": None}
    return {f".claims/{claim.name}": json.dumps(work).encode(), UNFINISHED: b"top_k: 3\n"}


@reads("claim", _claims, fixed=frozenset({UNFINISHED}), changes=True, ended=(".killed",))
def _claim(folder: Path) -> None:
    tracker: Any = Folder()
    tracker.outputs = folder
    recording.end_abandoned(tracker)


RECORD = RunRecord(
    "e", "run", {"top_k": 3, "metrics": ["mrr"], "dataset": None}, {"harness.verb": "run"}, {"x": "\u00e9"},
    {"mrr": 0.5, "private/mrr": 0.25}, Objective("mrr", 0.5, kind="out of fold"), True,
    {"qrels": Input("toy", "ab", "qrels.jsonl", 3)},
    {"scores.json": {"query_id": ["a", "b"], "mrr": [1.0, None]}}, began=1_790_000_000_000
)  # fmt: skip
HELD = outbox.Held(None, "FINISHED", "sqlite:///mlflow.db", "full", RECORD)


@reads("unsent run", written(lambda folder: outbox.write_saved(folder, HELD), "runs/run.unsent/"))
def _held(folder: Path) -> None:
    held = outbox.read_saved(folder / "runs" / "run.unsent")
    assert held.record.all_metrics is not held.record.all_end_tags
    read = lambda into: repr(dataclasses.asdict(outbox.read_saved(into)))  # noqa: E731
    again(lambda into: outbox.write_saved(into, held), read, repr(dataclasses.asdict(held)), "the record")


def _database(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as made:
        for table in sorted(mlflow_client.TABLES):
            made.execute(f"CREATE TABLE {table} (a TEXT)")
            made.execute(f"INSERT INTO {table} VALUES ('x')")
        made.commit()


@reads("database", written(_database))
def _fault(folder: Path) -> None:
    if why := mlflow_client.fault(folder / "mlflow.db", thorough=True):
        raise BadInput(f"mlflow.db {why}")


# The cache, shards, documents

IDENTITY = {"target": "gate/none", "version": 1}


def _filled(folder: Path) -> tuple[Any, ...]:
    cache = caches.Cache(folder / "cache")

    def save(into: Path) -> None:
        np.save(into / "signal.npy", np.arange(3.0), allow_pickle=False)

    def scores(at: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield np.arange(len(at)), np.array([2.0, 3.0])[list(at)]

    assert (cache.log_folder("replies", IDENTITY) / entries.MANIFEST).is_file()
    signal = np.load(cache.folder("signals", IDENTITY, save) / "signal.npy", allow_pickle=False)
    ranking = cache.ranking(IDENTITY, 1, lambda _: [RANKING])
    return signal.tolist(), ranking.to_dict(), cache.pairs(IDENTITY, [b"a" * 8, b"b" * 8], scores).tolist()


@reads("cache", written(_filled), changes=True)
def _cached(folder: Path) -> None:
    """Read it sealed, which may be refused, and then as a cache that replaces damaged entries."""
    entries._verified.clear()  # it trusts file times, too coarse for a thousand changes a second
    sealed = caches.Cache(folder / "cache", sealed=True)
    with contextlib.suppress(BadInput):
        sealed.folder("signals", IDENTITY, _never)
        same(RANKING.top(1).to_dict(), sealed.ranking(IDENTITY, 1, _never).to_dict(), "the ranking")
    entries._verified.clear()
    cache = caches.Cache(folder / "cache")
    assert all(entry.bytes >= 0 for entry in cache.entries())
    cache.size("signals", IDENTITY)
    cache.holds_ranking(IDENTITY, 1)
    cache.found("signals", IDENTITY)
    same(_filled(folder), ([0.0, 1.0, 2.0], {"q1": {"d1": 2.0}, "q2": {}}, [2.0, 3.0]), "a cached result")
    for entry in cache.entries():
        cache.remove(entry)


def _never(_: Any) -> Any:
    raise Wrong("a read-only cache builds")


MADE = (Document("12", "달은 지구의 위성이다", native_id=12), Document("d1", "", "", "toy"),
        Document("문서", "물은 100도에서 끓는다\r\u2028", "제목", "toy"))  # fmt: skip


def _write_shards(folder: Path, documents: Any = MADE) -> None:
    (folder / "shard").mkdir()
    shard, table = ShardWriter(folder / "shard"), CorpusWriter(folder, len(documents))
    for one in documents:
        row = fingerprint_row(one)
        shard.add(one, row)
        table.add(one, row)
    table.cut(shard.close())
    table.close()


def _of_shards(folder: Path) -> ShardedDocuments:
    return ShardedDocuments(folder, lambda _: folder / "shard")


@reads("shards", written(_write_shards), named=False)
def _shards(folder: Path) -> None:
    read = _of_shards(folder)
    for at, one in enumerate(documents := tuple(read)):
        same(read[at], one, "a document by its place")
    if any(doc_id in read.by_id and read.by_id[doc_id] not in documents for doc_id in read.by_id):
        raise BadInput(f"{folder}: the ids are in no order")
    again(lambda into: _write_shards(into, documents), lambda into: tuple(_of_shards(into)), documents, "the documents")


# Judged test sets


def _judged(folder: Path) -> None:
    made = judged_set(folder, 2)
    made.pool()
    made.judge("llm:tiny#0123abcd")
    with (made.folder / "judgements.jsonl").open("ab") as file:
        file.write(b'{"query": 7, "te')  # torn
    draw(made.folder, STATE, 2, 0)
    write_record(made.folder, JUDGE)


ASKED = {"q1": "달은?", "q2": "=1+1", "q3": "안녕"}
STATE = JudgedSet(
    {one: EvidencedQuery(Query.of(one, said), "fact", (), "queries.jsonl:1") for one, said in ASKED.items()},
    [PooledPair(query_id, doc_id, {"a1": 1}) for query_id in ASKED for doc_id in ("d1", "d2")],
    (),
)
JUDGE = JudgeRecord(
    by="llm:tiny#0123abcd", model="tiny", base_url="http://localhost:1/v1", prompt="0123abcd" * 8, language="ko",
    at="2026-11-22T09:31:00Z", grades={"0": 3, "1": 2, "2": 1, "3": 4, "null": 1}, seeds=Proportion(3, 4),
    controls={"seed": Proportion(3, 4), "stuffed": Proportion(0, 4)}, warnings=("The judge misses answers.",),
    usage={"requests": 19, "cost": None},
)  # fmt: skip
NEW = Judgement("7", "ab", "d9", 3, "llm:tiny#0123", "2026-11-22T09:31:00Z")


@reads("judged test set", written(_judged), changes=True, named=False)
def _judged_folder(folder: Path) -> None:
    folder /= "ts"
    read = pools.read_pool(folder)
    pools.pooled_documents(folder, None)
    pools.write_pool(folder, read)
    same(pools.read_pool(folder), read, "the pool")
    log = JudgementLog(folder)
    before = log.read()
    by_pair(current(before, {"7": Query.of("7", "달")}))
    log.append([NEW])
    same(log.read(), [*before, NEW], "the judgements")
    items("audit", "kim", STATE, draw(folder, STATE, 3, 0) if read_audit(folder) is None else SAMPLE)
    judges, new = read_records(folder), dataclasses.replace(JUDGE, by="llm:new#4567cdef", seeds=None)
    write_record(folder, new)
    same(read_records(folder), {**judges, new.by: new}, "the records")  # the record of one judge changes no other's


SAMPLE = AuditSample(0, dict.fromkeys(ASKED, "fact"), tuple(ASKED), ("q1",))


def _filled_in(folder: Path) -> None:
    documents = {doc_id: Document(doc_id, f"+ 달은 {doc_id}", "제목") for doc_id in ("d1", "d2")}
    asked, path = [*items("audit", "kim", STATE, SAMPLE)], folder / "filled.xlsx"
    queries = {query_id: one.query for query_id, one in STATE.queries.items()}
    write_workbook(path, Questions("human:kim", "audit", asked, queries, documents, "docs/documents.jsonl"))
    fill_in(path)


@reads("workbook", written(_filled_in))
def _workbook(folder: Path) -> None:
    found = read_workbook(folder / "filled.xlsx", "kim", STATE, SAMPLE, "2026-11-22T09:30:00Z")
    assert found.changed == found.same == found.kept == 0
    assert len(found.new) + found.empty <= 9
    assert all(one.grade in (0, 1, 2, 3, None) and one.pi == 1 for one in found.new)


AGREED = {"progress": {"checked": ["7"]}, "relevant_from": 2, "models": ["tiny#0123"], "judgements": "0" * 64,
          "model": {"statistics": {"kappa": {"value": 0.5, "low": None}}}, "again": None, "alpha": None}  # fmt: skip


def _frozen(folder: Path) -> None:
    made = judged(folder, 4)
    frozen(made.folder)
    (made.folder / "agreement.json").write_text(json.dumps(AGREED))


@reads("frozen test set", written(_frozen), changes=True, named=False)
def _read_frozen(folder: Path) -> None:
    """Read it with new checksums: the old ones would hide how the reader takes its content."""
    version = folder / "ts" / "v1"
    if all(path.is_file() for path in version.rglob("*") if not path.is_dir()):  # a pipe would be read for ever
        with contextlib.suppress(Exception):
            sealed(version)
    read = checked_dataset(Frozen(path=str(version)), "frozen")
    assert read.qrels
    for query_id, grades in read.qrels.grades.items():
        if {*grades} & (read.qrels.not_relevant or {}).get(query_id, frozenset()):
            raise Wrong("a document that is relevant and is not", query_id)
    same(checked_dataset(Frozen(path=str(version)), "frozen").fingerprints, read.fingerprints, "the dataset")
    freezing.export_testset(version, ["contest", "trec"])
    freezing.read_agreement(folder / "ts")


# What services send


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


ANSWERED = {"answer": "위성이다.", "evidence": ["위성"]}
DRAFTED = {"fact": {"question": "달은 무엇인가?", **ANSWERED}, "conversation": {"turns": TALK, **ANSWERED},
           "unanswerable": {"question": "달은 누가 그렸나?", "missing": "달의 화가"}}  # fmt: skip


@reads("drafted reply", {f"{kind}.json": json.dumps({"items": [item]}).encode() for kind, item in DRAFTED.items()},
       refusals=(WrongReply, BadInput), named=False)  # fmt: skip
def _drafted_reply(folder: Path) -> None:
    for kind in DRAFTED:
        for item in read_as(kind)(_text(folder / f"{kind}.json")):
            if not item.turns or not all(turn.content.strip() for turn in item.turns):
                raise Wrong("a turn is blank", repr(item)[:300])


HEAD = {"status": 200, "headers": {"Retry-After": "3", "Location": "/elsewhere", "Content-Encoding": "identity"}}


def _received(client: HttpClient, request: HttpRequest, file: Path) -> HttpReply:
    from urllib3 import HTTPResponse

    if not file.is_file() or not file.with_name("head.json").is_file():
        raise FailedAttempt("there is no reply")
    body, head = file.read_bytes(), file.with_name("head.json").read_text("latin-1")
    headers = dict(re.findall(r'"([\w-]+)": "([^"]{0,50})"', head))

    status = 200 if "200" in head else 302 if "2" in head else 400 if "3" in head else 500
    reply = HTTPResponse(io.BytesIO(body), headers, status, preload_content=False)
    return client._attempt(request, mock.Mock(request=lambda *_, **__: reply))


CHAT = {"choices": [{"message": {"content": "<think>x</think> yes"}, "finish_reason": "stop"}],
        "error": {"message": "no", "code": "content_filter"},
        "usage": {"prompt_tokens": 9, "completion_tokens": 3}}  # fmt: skip
HITS = {"hits": {"total": 2, "list": [{"id": "d1", "score": 2.5}, {"id": 3, "score": "1.5", "text": "x"}]}}
REPLIES = {"reply.json": CHAT, "found.json": HITS, "head.json": HEAD}


@reads("reply", {name: json.dumps(content).encode() for name, content in REPLIES.items()},
       refusals=(FailedAttempt, WrongReply), named=False)  # fmt: skip
def _reply(folder: Path) -> None:
    retriever = HttpRetriever("http://h:1/?q={query}&k={k}", "hits.list[*].id", "hits.list[*].score", method="GET")
    retriever._known = frozenset(toy().by_id)
    asked = HttpRequest("http://h:1/", method="GET")
    scores, _ = retriever._read(_received(retriever._client, asked, folder / "found.json"), 3)
    assert np.isfinite(list(scores.values())).all()
    client = ChatModel("m", "http://localhost:1/v1").client()
    received = _received(client, HttpRequest("http://localhost:1/v1"), folder / "reply.json")
    completion = _completion(received, 9)
    completion.text.encode()
    assert all(count is None or count >= 0 for count in (completion.input_tokens, completion.output_tokens))
    assert read_answer(completion.text) in (0, 1)
