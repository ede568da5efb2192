"""Formats of files that people bring: data sets, lists, text tasks, corpora, settings, prompts; and whole commands."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import tempfile
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from documents_folders import documents_folder, folder_of_testset, pieces, query, quoted
from text_files import hwpx, latin_pdf, paragraph, section, unicode_pdf

from fuzzing.trial import Files, Wrong, each, lines, reads, same, text_again, written
from harness import cli
from harness.commands.reproduce import Proof, bare_rows, rows_sha256
from harness.config import defaults, manual, recipes
from harness.config.command_list import Command
from harness.config.components import conf_folder
from harness.config.overrides import lookup, override_of
from harness.corpus.chunking import Chunking, Note, load_tokenizer
from harness.corpus.extraction import extract
from harness.corpus.files import find_files
from harness.data import contest, dataset, qa, run_file, submissions, tables, trec
from harness.data.files import sha256_of
from harness.data.predictions import read_predictions
from harness.data.qrels import Qrels
from harness.data.testset import KINDS, SpanLabelled
from harness.errors import BadInput
from harness.llm.structured import read_prompt
from harness.measures.measures import SPAN_MEASURES
from harness.measures.scores import ShownLists, score_lists
from harness.storage.cache import Cache
from harness.sweeps.axes import Values
from harness.sweeps.plan import SweepObjective
from harness.sweeps.search import Search
from harness.tasks.answers import Answers
from harness.tasks.corrections import Corrections
from harness.testset.draft.drafts import example_lines, read_examples
from retrievers.base import Ranking

TALK = [{"role": role, "content": said} for role, said in (("user", "물"), ("assistant", "네"), ("user", "몇 도?"))]
CONTEST = {
    "documents.jsonl": lines(
        {"docid": "d1", "src": "toy", "content": "달은 지구의 위성이다"},
        {"docid": "d2", "src": "toy", "content": "물은 100도에서 끓는다"},
        {"docid": 3, "content": "달의 모양은 변한다\r\u2028"},
    ),
    "eval.jsonl": lines(
        {"eval_id": 7, "msg": [{"role": "user", "content": "달의 모양은?"}]},
        {"eval_id": "q3", "msg": TALK},
        {"eval_id": 5, "msg": [{"role": "user", "content": "안녕"}]},
    ),
    "qrels.jsonl": lines(
        {"eval_id": 7, "relevant": {"3": 2, "d1": 1}, "basis": "human"},
        {"eval_id": "q3", "needs": True, "kind": "fact", "relevant": ["d2"], "not_relevant": ["d1"]},
        {"eval_id": 5, "relevant": []},
    ),
}
REWRITTEN = {"rewritten.jsonl": lines(*({"eval_id": one, "standalone_query": "달"} for one in (7, "q3", 5)))}


def _contest(folder: Path) -> dataset.Dataset:
    return dataset.checked_dataset(contest.Contest(path=str(folder)), "contest")


@functools.cache
def toy() -> dataset.Dataset:
    with tempfile.TemporaryDirectory() as name:
        for file, content in CONTEST.items():
            (Path(name) / file).write_bytes(content)
        return _contest(Path(name))


@reads("contest", CONTEST | REWRITTEN)
def _read_contest(folder: Path) -> None:
    read = _contest(folder)
    assert read.fingerprints
    dataset.search_queries(read, "last")
    dataset.search_queries(read, "file", str(folder / "rewritten.jsonl"))


BEIR = {
    "corpus.jsonl": lines({"_id": "d1", "title": "달", "text": "위성"}, {"_id": "2", "text": "물", "metadata": {}}),
    "queries.jsonl": lines({"_id": "q1", "text": "달?"}, {"_id": "q2", "text": "물?"}, {"_id": "q3", "text": "x"}),
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\t2\t2\nq2\td1\t0\n",
}
ASKED = [{"id": "q1", "question": "달?", "answers": [{"text": "위성"}]},
         {"id": 2, "question": "?", "is_impossible": True}]  # fmt: skip
SQUAD = [{"title": "달 의", "paragraphs": [{"context": "달은 위성이다", "qas": ASKED}, {"context": "물", "qas": []}]}]
PARQUET = {
    "corpus.parquet": [{"doc_id": "d1", "contents": "달"}, {"doc_id": "d2", "contents": "물"}],
    "qa.parquet": [{"qid": "q1", "query": "달?", "retrieval_gt": [["d1"], ["d2"]]},
                   {"qid": "q2", "query": "물?", "retrieval_gt": []}],
}  # fmt: skip


def _write_parquets(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    for name, rows in PARQUET.items():
        parquet.write_table(pa.Table.from_pylist(rows), folder / name)


DATA: dict[str, tuple[Any, Callable[[Path], Any]]] = {
    "beir": (BEIR, lambda folder: trec.Beir(path=str(folder))),
    "squad": ({"squad.json": json.dumps({"data": SQUAD}).encode()}, lambda at: qa.Squad(path=str(at / "squad.json"))),
    "autorag": (written(_write_parquets), lambda folder: qa.Autorag(path=str(folder))),
}
for _name, (_files, _opened) in DATA.items():

    @reads(_name, _files)
    def _data(folder: Path, name: str = _name, opened: Callable[[Path], Any] = _opened) -> None:
        assert dataset.checked_dataset(opened(folder), name).fingerprints


# Ranked lists

METRICS = ["modified_map@3", "modified_ndcg@3", "mrr", "ndcg@10", "map", "recall@2", "abstention_f1"]
SCORED = (
    (7, ["d1", 3], [(1.5, "달은 지구의 위성이다"), (0.5, "달의 모양은 변한다\r\u2028")]),
    ("q3", ["d2"], [(1, "물은 100도에서 끓는다")]),
    (5, [], []),
)
ROWS = lines(*(
    {"eval_id": one, "standalone_query": "달?", "topk": topk, "answer": "",
     "references": [{"score": score, "content": content} for score, content in references]}
    for one, topk, references in SCORED
))  # fmt: skip
LISTS = {"rows.csv": ROWS, "rows.jsonl": ROWS, "sample.csv": ROWS, "qrels.trec": b"q1 0 d1 1\nq2 0 d2 2\nq2 0 d1 -1\n",
         "run.trec": b"q1 Q0 d1 1 2.5 x\nq1 Q0 d2 2 2.5 x\nq2 Q0 d2 1 -1e9 x\n"}  # fmt: skip


@reads("lists", LISTS)
def _lists(folder: Path) -> None:
    for name in ("rows.csv", "rows.jsonl"):
        each(*(functools.partial(part, folder / name) for part in (_submission, _run_file, _predictions, _repeated)))
    judged = trec.Trec(qrels=str(folder / "qrels.trec")).qrels()
    assert judged
    _predictions(folder / "run.trec", judged, METRICS[2:4])


def _submission(file: Path) -> None:
    known = toy()
    submissions.validate_submission(file, [one.query_id for one in known.queries], known.by_id, 3)
    submissions.validate_against(file, file.with_name("sample.csv"))
    full = submissions.with_contents(file, known.by_id)
    text_again(full, lambda path: submissions.with_contents(path, known.by_id), full, "x.jsonl")


def _run_file(file: Path) -> None:
    retriever, known = run_file.RunFile(str(file), missing="empty"), toy()
    sha256_of(file)
    with tempfile.TemporaryDirectory() as name:
        retriever.index(known.documents, Path(name))
        found = retriever.search(known.queries, 3)
        retriever.load(Path(name))
    same(found.to_dict(), retriever.search(known.queries, 3).to_dict(), "the ranking")


def _predictions(file: Path, qrels: Qrels | None = None, metrics: Sequence[str] = METRICS) -> None:
    read, labels = read_predictions(file), qrels or toy().qrels
    assert labels
    try:
        score_lists(ShownLists(read), labels, metrics, missing="zero", detailed=())
    except BadInput as error:  # about lists and labels that do not fit each other
        raise BadInput(f"{file.name}: {error}") from None


def _repeated(file: Path) -> None:
    rows = bare_rows(file)
    empty = [{**row, "topk": []} for row in map(json.loads, ROWS.decode().strip().split("\n"))]
    with contextlib.suppress(BadInput):  # names no file
        Proof("r", {"then": rows_sha256(rows)}, rows).check_repeated(empty)


# Text tasks

KINDS_ASKED = (("선다형", 2), ("단답형", "가#나"), ("서술형", '"가"가 옳다.'))
ANSWERS = [{"id": item, "input": {"question_type": kind, "question": "무엇?"}, "output": {"answer": said}}
           for item, (kind, said) in enumerate(KINDS_ASKED)]  # fmt: skip
REFERENCES = [{"id": "s1", "source": "감자기 일어났다", "reference": "갑자기 일어났다", "error_type": "맞춤법"},
              {"id": "s2", "source": "나는, 학교을", "reference": "나는, 학교를", "error_type": None}]  # fmt: skip
CORRECTED = [{"id": "s1", "prediction": "갑자기 일어났다"}, {"id": "s2", "prediction": "나는, 학교을"}]


def as_csv(rows: Any) -> bytes:
    return tables.csv_text({name: [row[name] for row in rows] for name in rows[0]}).encode()


@functools.cache
def _cache() -> Cache:
    return Cache(Path(tempfile.mkdtemp(prefix="fuzz-cache-")))


@reads("answers", {"P.json": json.dumps(ANSWERS, ensure_ascii=False).encode(), "R.jsonl": lines(*ANSWERS)})
def _answers(folder: Path) -> None:
    for scheme, measure in (("rag_qa", "exact_match"), ("culture_qa", "accuracy")):
        task = Answers(scheme=scheme)  # type: ignore[arg-type]
        judged = task.judge(folder / "P.json", folder / "R.jsonl", [measure], _cache())
        task.measure({name: np.sum(values) for name, values in judged.item_counts.items()})


PAIR = {"R.csv": as_csv(REFERENCES), "P.csv": as_csv(CORRECTED)}


@reads("corrections", PAIR | {"P.jsonl": lines(*CORRECTED), "R.jsonl": lines(*REFERENCES)})
def _corrections(folder: Path) -> None:
    for predictions, references in (("P.jsonl", "R.csv"), ("P.csv", "R.jsonl")):
        table = Corrections().judge(folder / predictions, folder / references, [], _cache()).table
        cells = {column: ["" if cell is None else str(cell) for cell in row] for column, row in table.items()}
        text_again(tables.csv_text(table), tables.read_columns, cells, "items.csv")


# Corpora and test sets

PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>달</title></head><body><nav><a href="/">처음</a></nav>
<h1>달</h1><p>달은 <b>위성</b>이다.<br>물은&nbsp;끓는다 &amp; &#xAC00;</p><ul><li>하나<li>둘</ul><pre> a
b</pre><table><tr><th>이름<th>값</tr><tr><td><p>달<td>1</tr></table><div hidden>숨은 글</div><script>x("<p>")</script>
</body></html>"""
CELLS = "".join(f"<hp:tc><hp:subList>{paragraph(said)}</hp:subList></hp:tc>" for said in "12")
SECTION = section(
    paragraph("달은<hp:tab/>위성<hp:deleteBegin/>지움<hp:deleteEnd/>이다 &amp; &#xAC00;")
    + f"<hp:p><hp:run><hp:tbl><hp:tr>{CELLS}</hp:tr></hp:tbl><hp:ctrl><hp:footNote><hp:subList>{paragraph('각주')}"
    + "</hp:subList></hp:footNote></hp:ctrl></hp:run></hp:p>"
)
PROSE = "가람모터스는 경기도에 있는 회사이다. 전기 자동차의 부품을 만들고 있다.\r\n달은 위성이다.\n"
TEXTS: dict[str, Files] = {
    "text file": {"a.txt": PROSE.encode(), "b.md": PROSE.encode("cp949")},
    "html": {"a.html": PAGE.encode()},
    "hwpx": {"a.hwpx": hwpx(SECTION, section(paragraph("끝")), manifest="<odf:manifest/>")},
    "pdf": {"a.pdf": latin_pdf(["The moon is a satel-", "lite."], [], ["Water."]),
            "b.pdf": unicode_pdf("달은 위성이다", {})},
}  # fmt: skip
for _name, _files in TEXTS.items():

    @reads(_name, _files)
    def _text(folder: Path, names: Sequence[str] = tuple(_files)) -> None:
        """Extract texts, and check their promised form."""
        for name in names:
            [one] = find_files(str(folder / name))
            said, pages = (found := extract(one.path)).text, found.pages
            if "\r" in said or said[0] == "\ufeff" or not unicodedata.is_normalized("NFC", said) or not said.strip():
                raise Wrong("the text is not in its form", repr(said[:200]))
            said.encode()  # there are no half characters
            if pages is not None and (pages[0] or list(pages) != sorted(pages) or pages[-1] > len(said)):
                raise Wrong("pages are not in order", repr(pages))


SEA, EDITED = (
    "해달은 조개를 돌로 깬다. 문어는 다리가 여덟이다.\r\u2028 고래는 젖을 먹인다.",
    "두루미는 겨울에 온다. 제비도.",
)
QUERIES = [
    query(7, "해달은?", [quoted(SEA, "해달은 조개를 돌로 깬다.", grade=2)], "fact"),
    query("q2", "새", [quoted("Once. " + EDITED, "두루미는 겨울에 온다.")], "search"),  # before it was edited
    query("q3", "안녕", kind="none"),
    query("q4", "상어는?", kind="unanswerable"),
]


def _labelled(folder: Path) -> None:
    documents_folder(folder / "docs", {"sea.txt": SEA, "birds.txt": EDITED}, lambda text: pieces(text, 16))
    folder_of_testset(folder / "ts", QUERIES, "../docs")


@reads("test set", written(_labelled))
def _testset(folder: Path) -> None:
    read = dataset.checked_dataset(SpanLabelled(path=str(folder / "ts")), "testset")
    assert read.qrels
    for query_id, grades in read.qrels.grades.items():
        if bool(grades) != bool(read.qrels.evidence.get(query_id)):
            raise Wrong("a label without evidence", f"{query_id}: {grades}")
    if read.qrels.grades and read.fingerprints:
        found = Ranking.from_scores({one.query_id: {read.documents[0].doc_id: 1.0} for one in read.queries})
        score_lists(ShownLists(found), read.qrels, SPAN_MEASURES)


REAL = lines({"eval_id": 7, "msg": TALK[:1], "relevant": ["d1"]}, {"eval_id": "b", "msg": TALK, "relevant": {"d2": 2}})
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "가": 1}, "unk_token": "[UNK]"},
}  # fmt: skip
PROMPTED = {
    "real.jsonl": REAL,
    "real.txt": "달은 왜 둥글어\n끓는점 물\n".encode(),
    "note.txt": "이 문서는 '{name}'에 대한 {{정보}}이다: {stem}, {path}\n".encode(),
    "prompt.txt": '대화를 검색 질의 하나로 다시 쓰십시오: {"query": …}\n{conversation}\n'.encode(),
    "tokenizer.json": json.dumps(TOKENIZER).encode(),
}


@reads("examples, notes, prompts", PROMPTED)
def _prompted(folder: Path) -> None:
    for name in ("real.jsonl", "real.txt"):
        found = read_examples(folder / name)
        if any(not row.startswith("- ") for kind in KINDS for row in example_lines(found.queries, kind, 0).split("\n")):
            raise Wrong("an example is more than a line", repr(found.queries)[:300])
    Note.read(folder / "note.txt").of("a/Tesla_KR.txt").encode()
    prompt = read_prompt(folder / "prompt.txt", ["conversation"], key="query.prompt")
    assert "{물}" in prompt.filled(conversation="{물}")
    load_tokenizer.cache_clear()
    spans = Chunking(size=3, overlap=1, unit="tokens", tokenizer=str(folder / "tokenizer.json")).spans(PROSE)
    assert "".join(PROSE[start:end] for start, end in spans)


# Settings

DEFAULTS = """dataset: contest  # as everywhere here
dataset.path: data
top_k: 5
retriever: hybrid_lexical
retriever.bm25.k1: 1.5
metrics: [ndcg@10, mrr]
experiment_name: "2024"
"""
RECIPE = """# @package _global_
# What everybody here uses.
defaults:
  - base
  - override /gate: score
  - override /retriever: hybrid_lexical

gate: {source: bigram, threshold: 6}
fusion:
  weights:
    bm25: 0.5
dataset:
  path: "a folder, with = signs"  # a comment
metrics: [ndcg@10, mrr]
top_k: 5
hydra:
  sweeper:
    params:
      top_k: 1,2
"""
BASE = """# @package _global_
outputs: elsewhere
metrics:
  - mrr
"""
_read_page = manual.read_manual


@reads("harness.yaml", {"harness.yaml": DEFAULTS.encode()})
def _defaults(folder: Path) -> None:
    for word in ("top_k=3", "retriever=bm25"):
        defaults.command_defaults("run", [word], folder)


def _page(path: Path) -> manual.Page:
    return (_read_page if path.is_relative_to(conf_folder()) else _read_page.__wrapped__)(path)


RECIPES = {"experiment/mine.yaml": RECIPE.encode(), "experiment/base.yaml": BASE.encode()}


@reads("recipe", RECIPES)
def _recipe(folder: Path) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if not (folder / "experiment" / "mine.yaml").exists():  # the command line would name it
        raise BadInput("mine.yaml is missing")
    with mock.patch.object(manual, "read_manual", _page):
        settings, others = recipes.unfolded("search", ["experiment=mine", "top_k=3"], [folder])
    same(others, ["top_k=3"], "the command line")
    key_of = lookup("search", others)
    for one in settings:
        same(OverridesParser.create().parse_override(override_of(one, key_of)).key_or_group, one.key, "a key")


# Whole commands: exit codes, messages, leftovers

OUT = ("outputs=out", "format=json")
QUIET = ("tracking=none", "store.path=store", *OUT)
TOY = ("dataset=contest", "dataset.path=.", "tokenizer=word")
WORDS = ("retriever=bm25", "retriever.bm25.k1=1.2", "tokenizer=word", "top_k=3", "depth=10", "gate=score",
         "gate.threshold=2.5", "metrics=[modified_map@3,ndcg@10]", "seed=1", "public=0.3", "query.file=null",
         "dataset=contest", "dataset.path=.", "experiment_name=e")  # fmt: skip
PLAIN = {"features": [["bm25", "top_score"]], "k": 10, "levels": [3, 0], "thresholds": ["-inf"], "centre": [0.5],
         "scale": [1.0], "weights": [0.1], "intercept": -1.5}  # fmt: skip
LISTS = {"a.run": b"1 Q0 d1 1 2.5 x\n1 Q0 d3 2 1 x\n2 Q0 d2 1 0.5 x\n", "b.run": b"1 Q0 d3 1 9 x\n2 Q0 d9 1 1 x\n",
         "qrels.txt": b"1 0 d1 1\n1 0 d2 0\n2 0 d2 2\n"}  # fmt: skip
PREPARED = {"in/one.txt": "가나다. 라마바! 사아자.\n\n차카타.".encode(), "in/two.md": b"# One\n\n- two\n- three",
            "note.txt": b"{name}: {path}"}  # fmt: skip
OF_FILES = ("runs=[a.run,b.run]", "dataset=trec", "dataset.qrels=qrels.txt", "metric=map", *OUT)
PREPARE = ("files=in/*", "output=docs", "chunk.size=9", "chunk.overlap=5", "chunk.note=note.txt", *OUT)
FITTED = CONTEST | {"gate.json": json.dumps({"rule": PLAIN, "objective": "map", "notes": []}).encode()}
CALLS: dict[str, tuple[Files, str, Sequence[str], bool]] = {  # files, command, words, whether a refusal names a file
    "run": (FITTED, "run", (*TOY, *QUIET, "gate=fitted", "gate.file=gate.json"), False),
    "prepare": (PREPARED, "prepare", PREPARE, True),
    "search": (CONTEST, "search", (*TOY, "store.path=store", *OUT[1:], "query=달"), True),
    "score lists": (CONTEST | {"P.jsonl": ROWS}, "score", (*TOY[:2], "predictions=P.jsonl", *QUIET), False),
    "compare files": (LISTS, "compare", OF_FILES, True),
    "power of files": (LISTS, "power", OF_FILES, True),
    "score corrections": (PAIR, "score", ("task=corrections", "references=R.csv", "predictions=P.csv", *QUIET), True),
}


def called(command: str, *words: str) -> None:
    """Call a command. Raise BadInput with its message for exit code 2; Wrong for a traceback or another exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.call(command, list(words))
    said = err.getvalue()
    if "Traceback (most recent call last)" in said:
        errors = re.findall(r"^(?:harness [a-z ]+ failed: )?([\w.]+): ", said, re.MULTILINE)
        raise Wrong(f"a traceback: {errors[-1] if errors else 'unknown'}", said)
    if code not in (0, 2) or (code == 2 and not said.strip()):
        raise Wrong(f"harness {command} ends with {code}", said)
    if code == 2:
        raise BadInput(said)


for _name, (_files, _command, _words, _named) in CALLS.items():
    _ended = (".unfinished",) if _name == "prepare" else ()

    @reads(_name, _files, changes=True, named=_named, ended=_ended, command=True)
    def _call(_: Path, command: str = _command, words: Sequence[str] = _words) -> None:
        called(command, *words)


@reads("words", {"run.words": "\n".join(WORDS).encode()}, changes=True, named=False, command=True)
def _run_words(folder: Path) -> None:
    if not (file := folder / "run.words").is_file():
        raise BadInput(f"{file} is missing")
    said = file.read_bytes().decode("utf-8", "surrogateescape")
    with mock.patch.object(Command, "load"):
        called("run", *(word for word in said.replace("\0", "").split("\n") if word))


@reads("config", RECIPES, changes=True, named=False, command=True)
def _config(_: Path) -> None:
    with mock.patch.object(Command, "load"):
        called("run", "--config-dir=.", "experiment=mine", "dataset=contest")


def _open_study(folder: Path) -> None:
    space = {"top_k": Values(("1", "2"), True)}
    Search("random").open(folder / "study.db", space, [SweepObjective("map", "maximize")], "sweep")


reads("study", written(_open_study), changes=True, command=True)(_open_study)
