"""Formats of files that people bring: data sets, lists, corpora, text tasks, settings, prompts."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import tempfile
import unicodedata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from documents_folders import documents_folder, folder_of_testset, pieces, query, quoted
from text_files import hwpx, latin_pdf, paragraph, section, unicode_pdf

from fuzzing.format import Files, Wrong, again, lines, reads, same, text_again, written
from harness.config import defaults, manual, recipes
from harness.config.components import conf_folder
from harness.config.overrides import lookup, override_of
from harness.corpus.chunked import Chunked
from harness.corpus.chunking import Chunking, Note, load_tokenizer
from harness.corpus.extraction import Extracted, extract, extract_here
from harness.corpus.files import find_files
from harness.data import contest, dataset, labels, qa, run_file, submissions, tables, trec
from harness.data.files import json_lines, json_text, sha256_of, unique_rows
from harness.data.predictions import read_predictions
from harness.data.spans import SpanQrels
from harness.data.testset import SpanLabelled
from harness.errors import BadInput
from harness.llm.structured import read_prompt
from harness.measures.measures import SPAN_MEASURES
from harness.measures.scores import ShownLists, score_lists
from harness.storage.atomic import write_text
from harness.storage.cache import Cache
from harness.tasks.answers import Answers
from harness.tasks.corrections import Corrections
from harness.testset.draft.drafts import KINDS, example_lines, read_examples
from retrievers.base import Predictions, Qrels, Ranking

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
        {"eval_id": 7, "relevant": {"3": 2, "d1": 1}}, {"eval_id": "q3", "relevant": ["d2"]},
        {"eval_id": 5, "relevant": []},
    ),
}  # fmt: skip


def _contest(folder: Path) -> dataset.Dataset:
    return dataset.checked_dataset(contest.Contest(path=str(folder)), "contest")


@reads("contest", CONTEST)
def _read_contest(folder: Path) -> None:
    read = _contest(folder)
    dataset.search_queries(read)
    dataset.search_queries(read, "last")

    def write(into: Path) -> None:
        ids = {one: one.native_id for one in (*read.documents, *read.queries) if one.native_id is not None}
        rows = ({"docid": ids.get(one, one.doc_id), "src": one.source, "content": one.text} for one in read.documents)
        write_text(into / "documents.jsonl", json_text(rows))
        talks = ((ids.get(one, one.query_id), [dataclasses.asdict(turn) for turn in one.turns]) for one in read.queries)
        write_text(into / "eval.jsonl", json_text({"eval_id": one, "msg": turns} for one, turns in talks))
        if read.qrels is not None:
            judged = ({"eval_id": one, "relevant": dict(grades)} for one, grades in read.qrels.grades.items())
            write_text(into / "qrels.jsonl", json_text(judged))

    if read.qrels is None or (read.qrels.grades and read.qrels == Qrels(read.qrels.grades)):
        again(write, lambda into: _contest(into).fingerprints, read.fingerprints, "the dataset")


@functools.cache
def toy() -> dataset.Dataset:
    with tempfile.TemporaryDirectory() as name:
        for file, content in CONTEST.items():
            (Path(name) / file).write_bytes(content)
        return _contest(Path(name))


REWRITTEN = lines(*({"eval_id": one, "standalone_query": "달"} for one in (7, "q3", 5)))


@reads("rewritten", CONTEST | {"rewritten.jsonl": REWRITTEN}, fixed=frozenset(CONTEST))
def _rewritten(folder: Path) -> None:
    dataset.search_queries(_contest(folder), "file", str(folder / "rewritten.jsonl"))


@reads("labels with holes", {"labels.jsonl": lines(
    {"eval_id": 7, "needs": True, "kind": "fact", "relevant": {"d1": 2}, "not_relevant": ["d2"], "basis": "human"},
    {"eval_id": "q3", "needs": False, "kind": "none", "relevant": {}, "not_relevant": ["d1"], "basis": "llm"},
    {"eval_id": 5, "relevant": []},
)})  # fmt: skip
def _labels(folder: Path) -> None:
    path = folder / "labels.jsonl"
    rows = unique_rows(path, json_lines(path), "eval_id")
    read = [labels.read_label(row, where, query_id) for where, query_id, _, row in rows]
    labels.qrels_of(read)
    same([labels.read_label(labels.label_row(one), "again", one.query_id) for one in read], read, "the labels")


@reads("beir", {
    "corpus.jsonl": lines({"_id": "d1", "title": "달", "text": "위성"}, {"_id": "2", "text": "물", "metadata": {}}),
    "queries.jsonl": lines({"_id": "q1", "text": "달?"}, {"_id": "q2", "text": "물?"}, {"_id": "q3", "text": "x"}),
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\t2\t2\nq2\td1\t0\n",
})  # fmt: skip
def _beir(folder: Path) -> None:
    assert dataset.checked_dataset(trec.Beir(path=str(folder)), "beir").fingerprints


SQUAD = [{"title": "달 의", "paragraphs": [
    {"context": "달은 위성이다", "qas": [{"id": "q1", "question": "달?", "answers": [{"text": "위성"}]},
                                    {"id": 2, "question": "?", "is_impossible": True}]},
    {"context": "물", "qas": []}]}]  # fmt: skip


@reads("squad", {"squad.json": json.dumps({"version": "x", "data": SQUAD}).encode()})
def _squad(folder: Path) -> None:
    assert dataset.checked_dataset(qa.Squad(path=str(folder / "squad.json")), "squad").fingerprints


def _parquets() -> Files:
    import pyarrow as pa
    from pyarrow import parquet

    rows = {
        "corpus.parquet": [{"doc_id": "d1", "contents": "달"}, {"doc_id": "d2", "contents": "물"}],
        "qa.parquet": [{"qid": "q1", "query": "달?", "retrieval_gt": [["d1"], ["d2"]]},
                       {"qid": "q2", "query": "물?", "retrieval_gt": []}],
    }  # fmt: skip
    files = {name: io.BytesIO() for name in rows}
    for name, file in files.items():
        parquet.write_table(pa.Table.from_pylist(rows[name]), file)
    return {name: file.getvalue() for name, file in files.items()}


@reads("autorag", _parquets)
def _autorag(folder: Path) -> None:
    assert dataset.checked_dataset(qa.Autorag(path=str(folder)), "autorag").fingerprints


# Ranked lists

METRICS = ["modified_map@3", "modified_ndcg@3", "mrr", "ndcg@10", "map", "recall@2", "abstention_f1"]
REFERENCES_OF = {
    7: [(1.5, "달은 지구의 위성이다"), (0.5, "달의 모양은 변한다\r\u2028")],
    "q3": [(1, "물은 100도에서 끓는다")],
    5: [],
}  # fmt: skip
ROWS = lines(*(
    {"eval_id": one, "standalone_query": "달?", "topk": {7: ["d1", 3], "q3": ["d2"], 5: []}[one], "answer": "",  # type: ignore[index]
     "references": [{"score": score, "content": content} for score, content in references]}
    for one, references in REFERENCES_OF.items()
))  # fmt: skip


@reads("submission", {"submission.csv": ROWS, "sample.csv": ROWS})
def _submission(folder: Path) -> None:
    file, known = folder / "submission.csv", toy()
    submissions.validate_submission(file, [one.query_id for one in known.queries], known.by_id, 3)
    submissions.validate_against(file, folder / "sample.csv")
    full = submissions.with_contents(file, known.by_id)
    text_again(full, lambda path: submissions.with_contents(path, known.by_id), full, "the submission", "x.jsonl")


@reads("predictions", {"predictions.jsonl": ROWS})
def _predictions(folder: Path) -> None:
    known = toy()
    assert known.qrels
    _scored(read_predictions(folder / "predictions.jsonl"), known.qrels, METRICS, folder / "predictions.jsonl")


def _scored(read: Predictions, qrels: Qrels, metrics: list[str], file: Path) -> None:
    try:
        score_lists(ShownLists(read), qrels, metrics, missing="zero", detailed=())
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


@reads("trec run", {"run.trec": b"q1 Q0 d1 1 2.5 x\nq1 Q0 d2 2 2.5 x\nq2 Q0 d2 1 -1e9 x\n",
                    "qrels.trec": b"q1 0 d1 1\nq2 0 d2 2\nq2 0 d1 -1\n"})  # fmt: skip
def _trec(folder: Path) -> None:
    judged = trec.Trec(qrels=str(folder / "qrels.trec")).qrels()
    _scored(read_predictions(folder / "run.trec"), judged, ["mrr", "ndcg@10"], folder / "run.trec")


# Text tasks

ASKED = (("선다형", 2), ("단답형", "가#나"), ("서술형", '"가"가 옳다.'))
ANSWERS = [{"id": item, "input": {"question_type": kind, "question": "무엇?"}, "output": {"answer": said}}
           for item, (kind, said) in enumerate(ASKED)]  # fmt: skip
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


@reads("corrections", {"R.csv": as_csv(REFERENCES), "P.jsonl": lines(*CORRECTED), "R.jsonl": lines(*REFERENCES),
                       "P.csv": as_csv(CORRECTED)})  # fmt: skip
def _corrections(folder: Path) -> None:
    for predictions, references in (("P.jsonl", "R.csv"), ("P.csv", "R.jsonl")):
        table = Corrections().judge(folder / predictions, folder / references, [], _cache()).table
        cells = {column: ["" if cell is None else str(cell) for cell in row] for column, row in table.items()}
        text_again(tables.csv_text(table), tables.read_columns, cells, "the items", "items.csv")


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


def _extracted(folder: Path, name: str) -> tuple[Path, Extracted]:
    """Return a file as files of a corpus are found, and its text. Wrong unless that is in the form that is promised."""
    [one] = find_files(str(folder / name))
    found = extract(one.path)
    said, pages = found.text, found.pages
    if "\r" in said or said.startswith("\ufeff") or not unicodedata.is_normalized("NFC", said) or not said.strip():
        raise Wrong("the text is not in its form", repr(said[:200]))
    said.encode()  # half characters are none
    if pages is not None and (pages[0] or list(pages) != sorted(pages) or pages[-1] > len(said)):
        raise Wrong("pages are not in order", repr(pages))
    return one.path, found


@reads("text file", {"a.txt": PROSE.encode(), "b.md": PROSE.encode("cp949")})
def _text(folder: Path) -> None:
    for name in ("a.txt", "b.md"):
        _, found = _extracted(folder, name)
        text_again(found.text, extract, found, "the text", "a.txt")


@reads("html", {"a.html": PAGE.encode()})
def _html(folder: Path) -> None:
    path, found = _extracted(folder, "a.html")
    same(extract_here(str(path))["text"], found.text, "the text")


@reads("hwpx", {"a.hwpx": hwpx(SECTION, section(paragraph("끝")), manifest="<odf:manifest/>")})
def _hwpx(folder: Path) -> None:
    path, found = _extracted(folder, "a.hwpx")
    same(extract_here(str(path))["text"], found.text, "the text")


PDFS = {
    "a.pdf": latin_pdf(["The moon is a satel-", "lite."], [], ["Water."]),
    "b.pdf": unicode_pdf("달은 위성이다", {}),
}


@reads("pdf", PDFS)
def _pdf(folder: Path) -> None:
    for name in PDFS:
        _extracted(folder, name)


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
    assert isinstance(read.qrels, SpanQrels)
    for query_id, grades in read.qrels.grades.items():
        if bool(grades) != bool(read.qrels.evidence.get(query_id)):
            raise Wrong("a label without evidence", f"{query_id}: {grades}")
    if read.qrels.grades and read.fingerprints:
        found = Ranking.from_scores({one.query_id: {read.documents[0].doc_id: 1.0} for one in read.queries})
        score_lists(ShownLists(found), read.qrels, SPAN_MEASURES)


def _of_chunks(folder: Path) -> None:
    (folder / "corpus").mkdir()
    (folder / "corpus" / "sea.txt").write_bytes(SEA.encode())
    folder_of_testset(folder / "ts", QUERIES[:1])


@reads("chunked", written(_of_chunks), changes=True, named=False)
def _chunked(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as store:
        source = Chunked(store=store, files=str(folder / "corpus" / "*.txt"), testset=str(folder / "ts"))
        read = dataset.checked_dataset(source, "chunked")
        same(dataset.checked_dataset(source, "chunked").fingerprints, read.fingerprints, "the dataset")


REAL = lines({"eval_id": 7, "msg": TALK[:1], "relevant": ["d1"]}, {"eval_id": "b", "msg": TALK, "relevant": {"d2": 2}})


@reads("examples", {"real.jsonl": REAL, "real.txt": "달은 왜 둥글어\n끓는점 물\n".encode()})
def _examples(folder: Path) -> None:
    for name in ("real.jsonl", "real.txt"):
        found = read_examples(folder / name)
        if any(not row.startswith("- ") for kind in KINDS for row in example_lines(found.queries, kind, 0).split("\n")):
            raise Wrong("an example is more than a line", repr(found.queries)[:300])


@reads("note", {"note.txt": "이 문서는 '{name}'에 대한 {{정보}}이다: {stem}, {path}\n".encode()})
def _note(folder: Path) -> None:
    Note.read(folder / "note.txt").of("a/Tesla_KR.txt").encode()


TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "가": 1}, "unk_token": "[UNK]"},
}  # fmt: skip


@reads("tokenizer", {"tokenizer.json": json.dumps(TOKENIZER).encode()})
def _tokenizer(folder: Path) -> None:
    load_tokenizer.cache_clear()
    spans = Chunking(size=3, overlap=1, unit="tokens", tokenizer=str(folder / "tokenizer.json")).spans(PROSE)
    assert "".join(PROSE[start:end] for start, end in spans)


@reads("prompt", {"prompt.txt": '대화를 검색 질의 하나로 다시 쓰십시오: {"query": …}\n{conversation}\n'.encode()})
def _prompt(folder: Path) -> None:
    assert "{물}" in read_prompt(folder / "prompt.txt", ["conversation"], key="query.prompt").filled(
        conversation="{물}"
    )


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
    """Read a page of a config, anew unless it is shipped."""
    return (_read_page if path.is_relative_to(conf_folder()) else _read_page.__wrapped__)(path)


@reads("recipe", {"experiment/mine.yaml": RECIPE.encode(), "experiment/base.yaml": BASE.encode()})
def _recipe(folder: Path) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if not (folder / "experiment" / "mine.yaml").exists():  # what the command line names, not a file
        raise BadInput("mine.yaml is missing")
    with mock.patch.object(manual, "read_manual", _page):
        settings, others = recipes.unfolded("search", ["experiment=mine", "top_k=3"], [folder])
    same(others, ["top_k=3"], "the command line")
    key_of = lookup("search", others)
    for one in settings:
        same(OverridesParser.create().parse_override(override_of(one, key_of)).key_or_group, one.key, "a key")
