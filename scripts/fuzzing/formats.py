"""Every format that the harness reads: a small valid folder, and how the harness reads it.

To add one, write a function under `@reads(name, files)`: it gets the folder, reads the files as the harness does, uses
what it has read as a command would, and returns it. A test compares the functions that open or parse files with those
that these formats reach.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.board import runs as board_runs
from harness.board.choice import Chosen
from harness.commands.compare import retrieval_runs, task_runs
from harness.commands.compare.comparison import Settings
from harness.commands.export.ledger import Export, LeaderboardAnswer, Ledger, LedgerLine, Pending
from harness.commands.reproduce import command as reproduce
from harness.commands.reproduce.proof import Proof, bare_rows, rows_sha256
from harness.commands.sweep.trials import Context, JournalLine, Result, read_journal, write_journal
from harness.data import contest, dataset, labels, qa, run_file, submissions, tables, trec
from harness.data.files import json_lines, json_text, sha256_of, unique_rows
from harness.data.predictions import read_predictions
from harness.evaluation.objective import Objective
from harness.evaluation.prediction_powered import Estimate
from harness.evaluation.score_table import read_table
from harness.evaluation.scores import ShownLists, score
from harness.fusion.rule import FittedFusion, FusionRule
from harness.gates.rule import FittedGate, Rule
from harness.llm.prompts import read_prompt
from harness.storage import cache as caches
from harness.storage import entries
from harness.storage.append_log import AppendLog
from harness.storage.atomic import write_text
from harness.tasks.answers import Answers
from harness.tasks.corrections import Corrections
from harness.tracking import provenance, task_run
from harness.tracking.csv_tracker import CsvTracker
from harness.tracking.logged_run import in_full, read_config
from harness.tracking.ranking import RankedRun
from harness.tracking.run_kind import Retrieval
from harness.tracking.tracker import LoggedRun, NoFile, NoTracker
from retrievers.base import BadInput, Predictions, Qrels, Query, Ranking

Files = Mapping[str, bytes]


class Wrong(Exception):
    """What was read is not what was written, or not what is there. what: the kind of failure."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(detail)
        self.what = what


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that the harness reads.

    files:    name -> valid content. fixed: names that are not mutated.
    read:     folder -> what was read. Raises `refusals`, or Wrong.
    refusals: errors that refuse an input. named: whether their message must name a file of the folder.
    changes:  whether reading may change the folder. ended: endings of names that it may leave, which else are none of
        a finished result.
    """

    name: str
    files: Callable[[], Files]
    read: Callable[[Path], Any]
    fixed: frozenset[str] = frozenset()
    refusals: tuple[type[Exception], ...] = (BadInput,)
    named: bool = True
    changes: bool = False
    ended: tuple[str, ...] = ()

    @functools.cached_property
    def valid(self) -> Files:
        return self.files()


FORMATS: dict[str, Format] = {}


def reads(
    name: str, files: Files | Callable[[], Files], formats: dict[str, Format] | None = None, **options: Any
) -> Callable[..., Any]:
    """Register a reader in `formats`, by default FORMATS; options: those of Format."""

    def register(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        (FORMATS if formats is None else formats)[name] = Format(
            name, files if callable(files) else lambda: files, read, **options
        )
        return read

    return register


def same(one: Any, other: Any, what: str) -> None:
    """Raise Wrong unless the two are equal."""
    if one != other:
        raise Wrong(f"{what} is not what was written", f"{one!r:.500} became {other!r:.500}")


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


# Datasets

DOCUMENTS = lines(
    {"docid": "d1", "src": "toy", "content": "달은 지구의 위성이다"},
    {"docid": "d2", "src": "toy", "content": "물은 100도에서 끓는다"},
    {"docid": 3, "content": "달의 모양은 변한다\r\u2028"},
)
QUERIES = lines(
    {"eval_id": 7, "msg": [{"role": "user", "content": "달의 모양은?"}]},
    {"eval_id": "q3", "msg": [{"role": "user", "content": "물"}, {"role": "assistant", "content": "네"},
                              {"role": "user", "content": "몇 도에서 끓어?"}]},
    {"eval_id": 5, "msg": [{"role": "user", "content": "안녕"}]},
)  # fmt: skip
QRELS = lines(
    {"eval_id": 7, "relevant": {"3": 2, "d1": 1}}, {"eval_id": "q3", "relevant": ["d2"]}, {"eval_id": 5, "relevant": []}
)
CONTEST = {"documents.jsonl": DOCUMENTS, "eval.jsonl": QUERIES, "qrels.jsonl": QRELS}


def _native(one: str, native: int | None) -> int | str:
    return one if native is None else native


@reads("contest", CONTEST)
def _contest(folder: Path) -> None:
    read = dataset.load(contest.Contest(path=str(folder)), "contest")
    dataset.search_queries(read)
    dataset.search_queries(read, "last")
    documents = (
        {"docid": _native(one.doc_id, one.native_id), "src": one.source, "content": one.text} for one in read.documents
    )
    queries = (
        {"eval_id": _native(one.query_id, one.native_id), "msg": [dataclasses.asdict(turn) for turn in one.turns]}
        for one in read.queries
    )
    with tempfile.TemporaryDirectory() as name:
        again = Path(name)
        write_text(again / "documents.jsonl", json_text(documents))
        write_text(again / "eval.jsonl", json_text(queries))
        if read.qrels is not None:
            rows = ({"eval_id": one, "relevant": dict(grades)} for one, grades in read.qrels.grades.items())
            write_text(again / "qrels.jsonl", json_text(rows))
        if read.qrels is None or (read.qrels.grades and read.qrels == Qrels(read.qrels.grades)):
            same(read.fingerprints, dataset.load(contest.Contest(path=name), "contest").fingerprints, "the dataset")


@reads("labels with holes", {"labels.jsonl": lines(
    {"eval_id": 7, "needs": True, "kind": "fact", "relevant": {"d1": 2}, "not_relevant": ["d2"], "basis": "human"},
    {"eval_id": "q3", "needs": False, "kind": "none", "relevant": {}, "not_relevant": ["d1"], "basis": "llm"},
    {"eval_id": "q4", "needs": True, "kind": "unanswerable", "relevant": [], "not_relevant": [], "basis": ""},
    {"eval_id": 5, "relevant": []},
)})  # fmt: skip
def _labels(folder: Path) -> None:
    path = folder / "labels.jsonl"
    rows = unique_rows(path, json_lines(path), "eval_id")
    read = [labels.read_label(row, where, query_id) for where, query_id, _, row in rows]
    labels.qrels_of(read)
    again = [labels.read_label(labels.label_row(one), "again", one.query_id) for one in read]
    same(again, read, "the labels")


@reads("rewritten", CONTEST | {
    "rewritten.jsonl": lines(*({"eval_id": one, "standalone_query": "달"} for one in (7, "q3", 5)))
}, fixed=frozenset(CONTEST))  # fmt: skip
def _rewritten(folder: Path) -> None:
    read = dataset.load(contest.Contest(path=str(folder)), "contest")
    dataset.search_queries(read, "file", str(folder / "rewritten.jsonl"))


@reads("beir", {
    "corpus.jsonl": lines({"_id": "d1", "title": "달", "text": "위성"}, {"_id": "2", "text": "물", "metadata": {}}),
    "queries.jsonl": lines({"_id": "q1", "text": "달?"}, {"_id": "q2", "text": "물?"}, {"_id": "q3", "text": "x"}),
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\t2\t2\nq2\td1\t0\n",
})  # fmt: skip
def _beir(folder: Path) -> None:
    read = dataset.load(trec.Beir(path=str(folder)), "beir")
    assert read.fingerprints


@reads("squad", {"squad.json": json.dumps({"version": "x", "data": [
    {"title": "달 의", "paragraphs": [
        {"context": "달은 위성이다", "qas": [{"id": "q1", "question": "달?", "answers": [{"text": "위성"}]},
                                        {"id": 2, "question": "?", "is_impossible": True}]},
        {"context": "물", "qas": []}]},
    {"paragraphs": [{"context": "달은 위성이다", "qas": [{"id": "q3", "question": "물?"}]}]}]}).encode()
})  # fmt: skip
def _squad(folder: Path) -> None:
    assert dataset.load(qa.Squad(path=str(folder / "squad.json")), "squad").fingerprints


def _parquets() -> Files:
    import pyarrow as pa
    from pyarrow import parquet

    tables = {
        "corpus.parquet": [{"doc_id": "d1", "contents": "달"}, {"doc_id": "d2", "contents": "물"}],
        "qa.parquet": [{"qid": "q1", "query": "달?", "retrieval_gt": [["d1"], ["d2"]]},
                       {"qid": "q2", "query": "물?", "retrieval_gt": []}],
    }  # fmt: skip
    written = {}
    for name, rows in tables.items():
        file = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows), file)
        written[name] = file.getvalue()
    return written


@reads("autorag", _parquets)
def _autorag(folder: Path) -> None:
    assert dataset.load(qa.Autorag(path=str(folder)), "autorag").fingerprints


# Ranked lists

METRICS = ["modified_map@3", "modified_ndcg@3", "mrr", "ndcg@10", "map", "recall@2", "abstention_f1"]
ROWS = lines(
    {"eval_id": 7, "standalone_query": "달?", "topk": ["d1", 3], "answer": "",
     "references": [{"score": 1.5, "content": "달은 지구의 위성이다"},
                    {"score": 0.5, "content": "달의 모양은 변한다\r\u2028"}]},
    {"eval_id": "q3", "standalone_query": "물?", "topk": ["d2"], "answer": "",
     "references": [{"score": 1, "content": "물은 100도에서 끓는다"}]},
    {"eval_id": 5, "standalone_query": "안녕", "topk": [], "answer": "", "references": []},
)  # fmt: skip


def _toy() -> dataset.Dataset:
    with tempfile.TemporaryDirectory() as name:
        for file, content in CONTEST.items():
            (Path(name) / file).write_bytes(content)
        return dataset.load(contest.Contest(path=name), "contest")


toy = functools.cache(_toy)


@reads("submission", {"submission.csv": ROWS, "sample.csv": ROWS})
def _submission(folder: Path) -> None:
    file, known = folder / "submission.csv", toy()
    submissions.validate_submission(file, [one.query_id for one in known.queries], known.by_id, 3)
    submissions.validate_against(file, folder / "sample.csv")
    full = submissions.with_contents(file, known.by_id)
    with tempfile.TemporaryDirectory() as name:
        again = Path(name) / "again.jsonl"
        write_text(again, full)
        same(full, submissions.with_contents(again, known.by_id), "the submission")


@reads("predictions", {"predictions.jsonl": ROWS})
def _predictions(folder: Path) -> None:
    read, known = read_predictions(folder / "predictions.jsonl"), toy()
    assert known.qrels
    _scored(read, known.qrels, METRICS, folder / "predictions.jsonl")


def _scored(read: Predictions, qrels: Qrels, metrics: list[str], file: Path) -> None:
    try:
        score(ShownLists(read), qrels, metrics, missing="zero", detailed=())
    except BadInput as error:  # of two files together: neither is to blame
        raise BadInput(f"{file}: {error}") from None


@reads("run file", {"mate.csv": ROWS})
def _run_file(folder: Path) -> None:
    retriever, known = run_file.RunFile(str(folder / "mate.csv"), missing="empty"), toy()
    sha256_of(folder / "mate.csv")
    with tempfile.TemporaryDirectory() as name:
        retriever.index(known.documents, Path(name))
        found = retriever.search(known.queries, 3)
        retriever.load(Path(name))
    same(found.to_dict(), retriever.search(known.queries, 3).to_dict(), "the ranking")


@reads("stored predictions", {"predictions.jsonl": ROWS}, named=False)
def _stored(folder: Path) -> None:
    rows = bare_rows(folder / "predictions.jsonl")
    proof = Proof(rows_sha256(rows), rows=rows)
    proof.check_repeated([{**row, "topk": []} for row in map(json.loads, ROWS.decode().strip().split("\n"))])


@reads("trec run", {"run.trec": b"q1 Q0 d1 1 2.5 x\nq1 Q0 d2 2 2.5 x\nq2 Q0 d2 1 -1e9 x\n",
                    "qrels.trec": b"q1 0 d1 1\nq2 0 d2 2\nq2 0 d1 -1\n"})  # fmt: skip
def _trec(folder: Path) -> None:
    read = read_predictions(folder / "run.trec")
    labels = trec.Trec(qrels=str(folder / "qrels.trec")).qrels()
    _scored(read, labels, ["mrr", "ndcg@10", "map", "recall@2"], folder / "run.trec")


# Text tasks


def _answer(item: int, kind: str, text: Any) -> dict[str, Any]:
    return {"id": item, "input": {"question_type": kind, "question": "무엇?"}, "output": {"answer": text}}


ANSWERS = [_answer(1, "선다형", 2), _answer(2, "단답형", "가#나"), _answer(3, "서술형", '"가"가 옳다. 왜냐하면')]


@functools.cache
def _cache() -> caches.Cache:
    return caches.Cache(Path(tempfile.mkdtemp(prefix="fuzz-cache-")))


@reads("answers", {"P.json": json.dumps(ANSWERS, ensure_ascii=False).encode(), "R.jsonl": lines(*ANSWERS)})
def _answers(folder: Path) -> None:
    for scheme, measure in (("rag_qa", "exact_match"), ("culture_qa", "accuracy")):
        task = Answers(scheme=scheme)  # type: ignore[arg-type]
        judged = task.judge(folder / "P.json", folder / "R.jsonl", [measure], _cache())
        task.measure({name: np.sum(values) for name, values in judged.item_counts.items()})


REFERENCES = [{"id": "s1", "source": "감자기 일어났다", "reference": "갑자기 일어났다", "error_type": "맞춤법"},
              {"id": "s2", "source": "나는, 학교을", "reference": "나는, 학교를", "error_type": None}]  # fmt: skip
CORRECTED = [{"id": "s1", "prediction": "갑자기 일어났다"}, {"id": "s2", "prediction": "나는, 학교을"}]


def rows_as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return tables.csv_text({name: [row[name] for row in rows] for name in rows[0]}).encode()


@reads("corrections", {"R.csv": rows_as_csv(REFERENCES), "P.jsonl": lines(*CORRECTED), "R.jsonl": lines(*REFERENCES),
                       "P.csv": rows_as_csv(CORRECTED)})  # fmt: skip
def _corrections(folder: Path) -> None:
    for predictions, references in (("P.jsonl", "R.csv"), ("P.csv", "R.jsonl")):
        judged = Corrections().judge(folder / predictions, folder / references, [], _cache())
        text = tables.csv_text(judged.table)
        with tempfile.TemporaryDirectory() as name:
            write_text(file := Path(name) / "items.csv", text)
            read = tables.read_columns(file)
            written = {
                column: ["" if cell is None else str(cell) for cell in cells] for column, cells in judged.table.items()
            }
            same(written, read, "the items")


# What the harness itself has written

SCORES = (b"query_id,needs,multi_turn,public,modified_map@3,mrr,oof/modified_map@3,oof/mrr\n"
          b"5,0,0,1,1.0,,1.0,\n7,1,0,0,0.5,0.5,0.25,0.5\nq3,1,1,1,0.25,1.0,0.5,1.0\n")  # fmt: skip
ITEMS = {
    "id": ["s1", "s2"],
    "kind": ["a", 'b\r"'],
    "source": ["x", "y"],
    "reference": ["x\n", ""],
    "prediction": ["x", "z"],
}
TALLIES = {"id": ["s1", "s2"], "kind": ["a", 'b\r"'], "public": [1, 0], "tp": [1.0, 0.0], "fp": [0.0, 1.0],
           "fn": [0.0, 1.0], "fr": [0.0, 0.0]}  # fmt: skip
TRIALS = {
    "trial": [0, 1],
    "status": ["FINISHED", "FAILED"],
    "map": [0.5, None],
    "top_k": ["1", "2"],
    "error": ["", "a\rb"],
}


LOSSES = SCORES.replace(b"public,m", b"public,loss,m").replace(b",1,1.0", b",1,,1.0")
LOSSES = LOSSES.replace(b",0,0.5", b",0,not_found,0.5").replace(b",1,0.25", b",1,misranked,0.25")


@reads("scores.csv", {"scores.csv": LOSSES, "old.csv": SCORES})
def _scores(folder: Path) -> None:
    read_table(folder / "scores.csv")
    read_table(folder / "scores.csv", "mrr")
    read_table(folder / "old.csv")


@reads("trials.csv", {"trials.csv": tables.csv_text(TRIALS).encode(), "items.csv": tables.csv_text(ITEMS).encode()})
def _tables(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        columns = tables.read_columns(file)
        with tempfile.TemporaryDirectory() as name:
            write_text(again := Path(name) / "again.csv", tables.csv_text(columns))
            same(columns, tables.read_columns(again), file.name)


@reads("runs.csv", {"runs.csv": tables.csv_text(TRIALS).encode()})
def _runs_table(folder: Path) -> None:
    CsvTracker().connect(folder)


RULE = {"features": [["bm25", "top_score"], [None, "query_words"]], "k": 10, "levels": [3, 0], "thresholds": ["-inf"],
        "centre": [0.5, 1], "scale": [1.0, 2], "weights": [0.1, -1], "intercept": -1.5, "embedding": [0.1, 2],
        "embedding_centre": [0, 0], "embedding_scale": [1, 1]}  # fmt: skip
GATE = {"rule": RULE, "objective": "map", "notes": []}
RANKING = Ranking.from_scores({"q1": {"d1": 2.0, "d2": 1.0}, "q2": {}})


class _Inputs:
    """What a rule reads: two queries, one ranking."""

    queries = conversations = (Query.of("q1", "two words"), Query.of("q2", "x"))
    rankings: Mapping[str, Ranking] = {"bm25": RANKING}

    def __getattr__(self, name: str) -> Any:
        raise BadInput("gate.json: this signal needs more than the fuzzer has")


@reads("gate.json", {"gate.json": json.dumps(GATE).encode()})
def _gate(folder: Path) -> None:
    rule = FittedGate(str(folder / "gate.json")).rule
    same(rule, Rule.from_json(json.loads(json.dumps(rule.to_json()))), "the rule")
    try:
        rule.check(["bm25"])
    except BadInput as error:  # about names, which a person can have meant
        raise BadInput(f"gate.json: {error}") from None
    plain = dataclasses.replace(rule, embedding=(), embedding_centre=(), embedding_scale=())
    with np.errstate(over="ignore", invalid="ignore"):  # coefficients up to the largest number
        rule.shown(plain.signal(_Inputs()))  # type: ignore[arg-type]


FUSION = {
    "version": 1,
    "rule": {
        "rankings": ["bigram", "bm25"],
        "features": [
            {"ranking": "bm25", "feature": "z_score", "weight": 0.7},
            {"ranking": "bigram", "feature": "returned", "weight": -1},
        ],
    },
    "notes": [],
}


@reads("fusion.json", {"fusion.json": json.dumps(FUSION).encode()})
def _fusion(folder: Path) -> None:
    rule = FittedFusion(str(folder / "fusion.json")).rule
    same(rule, FusionRule.from_json(json.loads(json.dumps(rule.to_json()))), "the rule")
    rule.fuse(dict.fromkeys(rule.rankings, RANKING), 2)


class Folder(NoTracker):
    """A tracker whose runs are folders in the working folder."""

    def download(self, run: LoggedRun, name: str, folder: Path) -> Path:
        if not (file := Path(run.run_id) / name).is_file():
            raise NoFile(f"Run {run.run_id} has no file {name!r}. Choose another run.")
        return file


def _run_of(name: str, **tags: str) -> LoggedRun:
    return LoggedRun(name, name, "e", "FINISHED", {}, {"dataset": "contest", "predictions": "P.jsonl"}, tags)


@functools.cache
def _composed(command: str, *words: str) -> dict[str, Any]:
    """The config of a command."""
    from harness.config.hydra_app import run_app

    found: list[dict[str, Any]] = []
    run_app(command, words, lambda: lambda config, invocation: found.append(config))
    return found[0]


def _logged() -> Files:
    config = _composed("run", "dataset=contest", "dataset.path=data", "tracking=none")
    files = {"config.yaml": provenance.resolved(config).encode(), "predictions.jsonl": ROWS, "scores.csv": SCORES,
             "metrics.json": b'{"metrics": {"mrr": 0.5, "map": 1}}'}  # fmt: skip
    made = {f"{run}/{name}": content for run in "ab" for name, content in files.items()}
    bare = ROWS.replace(
        '"content": "달'.encode(), '"x": "달'.encode()
    )  # some texts are missing: the data are read again
    made |= {"a/predictions.jsonl": bare, "b/predictions.jsonl": bare}
    made["b/scores.csv"] = SCORES.replace(b"0.5,0.5,0.25", b"1.0,0.5,0.75")
    return made | {f"data/{name}": content for name, content in CONTEST.items()}


_RUN = ("config.yaml", "metrics.json", "predictions.jsonl", "scores.csv")


@reads(
    "retrieval run",
    _logged,
    fixed=frozenset({*(f"data/{one}" for one in CONTEST), *(f"a/{one}" for one in _RUN)}),
    named=False,
)
def _retrieval(folder: Path) -> None:
    tags = {f"data.{name}": str(sha256) for name, sha256 in toy().fingerprints.items()}
    a, b = (_run_of(name, **tags, **{"harness.verb": "run"}) for name in "ab")
    tracker = Folder()
    config = read_config(folder / "b" / "config.yaml")
    text = provenance.resolved(config)
    with tempfile.TemporaryDirectory() as name:
        write_text(again := Path(name) / "config.yaml", text)
        same(text, provenance.resolved(read_config(again)), "the config")
    with contextlib.suppress(BadInput):
        reproduce._run_config(b, config, "run", {"data": dict.fromkeys(("path", "documents", "queries", "qrels"))})  # type: ignore[arg-type]
    with contextlib.suppress(BadInput):
        in_full(tracker, b)  # type: ignore[arg-type]
    with contextlib.suppress(BadInput):
        Retrieval().validated(tracker, b, None)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as name:
        runs = retrieval_runs.read(tracker, {"A": a, "B": b}, Path(name))  # type: ignore[arg-type]
        retrieval_runs.comparison(runs, Settings("modified_map@3", 100, 0))
        ranked = [RankedRun(run, Objective("mrr", 0.5)) for run in (a, b)]
        board_runs.of_chosen(tracker, Chosen("all", ranked, ()), "mrr", Path(name))  # type: ignore[arg-type]


def _task_files() -> Files:
    words = ("task=corrections", "references=R.csv", "predictions=P.csv", "tracking=none")
    config = _composed("score", *words)
    kept = {
        name: config[name] for name in ("task", "references", "predictions", "seed", "public", "metrics", "objective")
    }
    files = {"config.yaml": provenance.resolved(kept).encode(), "items.csv": tables.csv_text(ITEMS).encode(),
             "tallies.csv": tables.csv_text(TALLIES).encode()}  # fmt: skip
    made = {f"{run}/{name}": content for run in "ab" for name, content in files.items()}
    return made | {"R.csv": rows_as_csv(REFERENCES), "b/predictions.jsonl": lines(*CORRECTED)}


@reads("text task run", _task_files, fixed=frozenset({"a/config.yaml", "a/items.csv", "a/tallies.csv"}), named=False)
def _task_run(folder: Path) -> None:
    with contextlib.suppress(BadInput):
        task_run.validated(Folder(), _run_of("b"))  # type: ignore[arg-type]
    chosen = {label: _run_of(name) for label, name in zip("AB", "ab", strict=True)}
    with tempfile.TemporaryDirectory() as name:
        files = task_runs.read(Folder(), chosen, Path(name))  # type: ignore[arg-type]
        task_runs.comparison(files, Settings("correction_recall", 100, 0))


TOKEN = "0123456789abcdef"
OBJECTIVE = Objective("x", 0.5, 0.4, 0.6, estimate=Estimate(0.5, 0.4, 0.6, 30, 70, 0.9))
RESULT = Result(0, "k", None, "FINISHED", {"map": 0.5}, 0.1, objective=OBJECTIVE)


def logged(name: str, log: Callable[[Path], AppendLog[Any]], *rows: Any) -> Callable[[], Files]:
    """The files of a log with these rows. name: of its file. log: opens it in a folder."""

    def files() -> Files:
        with tempfile.TemporaryDirectory() as folder:
            made = log(Path(folder))
            made.append(rows)
            found = (made.path, made.path.with_suffix(".last"))
            return {f"{Path(name).parent / one.name}": one.read_bytes() for one in found if one.exists()}

    return files


def _journal_log(folder: Path) -> AppendLog[JournalLine]:
    return AppendLog(folder / "journal.jsonl", JournalLine, lenient=True)


LINES = [JournalLine(TOKEN, RESULT), JournalLine(TOKEN, dataclasses.replace(RESULT, number=1, status="FAILED"))]


@reads("journal", logged("journal.jsonl", _journal_log, *LINES))
def _journal(folder: Path) -> None:
    context = Context("s", "e", folder, TOKEN, {}, "")
    results, end = read_journal(context)
    read_journal(context, end)
    with tempfile.TemporaryDirectory() as name:
        again = dataclasses.replace(context, folder=Path(name))
        for result in results:
            write_journal(again, result)
        same(repr(results), repr(read_journal(again)[0]), "the journal")


EXPORT = Export("2026-07-01T12:30:00.000000+00:00", "ab" * 32, "best.csv", "a" * 32, "run", "e", "map", "t", value=0.5)
ANSWER = LeaderboardAnswer("2026-07-02T12:30:00.000000+00:00", "ab" * 32, "best.csv", public=0.8)


def _ledger_files() -> Files:
    steps = [LedgerLine(export=EXPORT), LedgerLine(answer=ANSWER)]
    pending = {
        "2026": Pending(LedgerLine(answer=dataclasses.replace(ANSWER, private=0.7))),
        "2027": Pending(LedgerLine(export=dataclasses.replace(EXPORT, file="other.csv")), "{}\n"),
    }
    return logged("submissions/ledger.jsonl", lambda folder: Ledger(folder)._log, *steps)() | {
        f"submissions/pending/{name}.json": lines(dataclasses.asdict(one)) for name, one in pending.items()
    }


@reads("ledger", _ledger_files, changes=True)
def _ledger(folder: Path) -> None:
    ledger = Ledger(folder / "submissions")
    with ledger.locked():
        ledger.settle(NoTracker())  # type: ignore[arg-type]
    for one in ledger.submissions().values():
        assert one.about
        assert one.runs


# Prompts


@reads("prompt", {"prompt.txt": '대화를 검색 질의 하나로 다시 쓰십시오: {"query": …}\n{conversation}\n'.encode()})
def _prompt(folder: Path) -> None:
    prompt = read_prompt(folder / "prompt.txt", ["conversation"], key="query.prompt")
    assert "{물}" in prompt.filled(conversation="{물}")


# The cache

IDENTITY = {"target": "gate/none", "version": 1}


def _filled(place: Path) -> tuple[Any, ...]:
    """Everything that a cache gives, computed where it is not there."""
    cache = caches.Cache(place)

    def save(folder: Path) -> None:
        np.save(folder / "signal.npy", np.arange(3.0), allow_pickle=False)

    assert (cache.log_folder("replies", IDENTITY) / entries.MANIFEST).is_file()
    signal = np.load(cache.folder("signals", IDENTITY, save) / "signal.npy", allow_pickle=False)
    ranking = cache.ranking(IDENTITY, 1, lambda _: RANKING)
    pairs = cache.pairs(
        IDENTITY, [b"a" * 8, b"b" * 8], lambda at: iter([(np.arange(len(at)), np.array([2.0, 3.0])[list(at)])])
    )
    return signal.tolist(), ranking.to_dict(), pairs.tolist()


def _entries() -> Files:
    with tempfile.TemporaryDirectory() as name:
        _filled(Path(name) / "cache")
        files = (path for path in Path(name).rglob("*") if path.is_file() and path.suffix != ".lock")
        return {path.relative_to(name).as_posix(): path.read_bytes() for path in files}


@reads("cache", _entries, changes=True)
def _cached(folder: Path) -> None:
    entries._verified.clear()  # it trusts times, which are too coarse for a file that changes a thousand times a second
    cache = caches.Cache(folder / "cache")
    for entry in cache.entries():
        assert entry.bytes >= 0
    cache.size("signals", IDENTITY)
    cache.holds_ranking(IDENTITY, 1)
    cache.found("signals", IDENTITY)
    expected = ([0.0, 1.0, 2.0], {"q1": {"d1": 2.0}, "q2": {}}, [2.0, 3.0])
    same(expected, _filled(folder / "cache"), "a cached result")
    for entry in cache.entries():
        cache.remove(entry)


@reads("sealed cache", _entries, named=False)
def _sealed(folder: Path) -> None:
    entries._verified.clear()
    cache = caches.Cache(folder / "cache", sealed=True)

    def never(_: Any) -> Any:
        raise Wrong("a read-only cache builds", "")

    cache.folder("signals", IDENTITY, never)
    same(RANKING.top(1).to_dict(), cache.ranking(IDENTITY, 1, never).to_dict(), "the ranking")
