"""The readers: what each format means, what is refused and where, and real files."""

import gzip
import json
import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.contest import Contest
from harness.data.dataset import checked_dataset
from harness.data.files import json_file
from harness.data.qa import Autorag, Squad
from harness.data.qrels import Qrels
from harness.data.trec import Beir, Trec
from harness.errors import BadInput
from retrievers.base import Document, Query, Turn

DOCUMENT = '{"docid": "d1", "src": "s", "content": "달"}'


def read(source, part):
    """One part of a data set, whole: documents may be read one at a time."""
    found = getattr(source, part)()
    return list(found) if part == "documents" else found


def parquet(path, **columns):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def squad(*questions, context="c", title="t"):
    return {"data": [{"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def test_contest(tmp_path):
    (tmp_path / "documents.jsonl").write_text(
        '{"docid": 2, "content": "b", "src": null, "more": 1}\n{"docid": "d1", "src": "s", "content": ""}\n'
    )
    (tmp_path / "eval.jsonl").write_text(
        '{"eval_id": 7, "msg": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
        '{"eval_id": "x", "msg": [{"role": "system", "content": "s"}, {"role": "user", "content": ""}]}\n'
    )
    source = Contest(path=str(tmp_path))
    assert list(source.documents()) == [Document("2", "b", native_id=2), Document("d1", "", source="s")]
    assert source.queries() == [
        Query("7", (Turn("user", "a"), Turn("assistant", "b")), 7),
        Query("x", (Turn("system", "s"), Turn("user", ""))),
    ]
    assert source.qrels() is Contest().qrels() is None  # no qrels.jsonl
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"eval_id": "7", "relevant": {"2": 3, "d1": 0.5}}\n{"eval_id": "x", "relevant": [2, "d1"]}\n')
    both = {"7": {"2": 3.0, "d1": 0.5}, "x": {"2": 1.0, "d1": 1.0}}
    assert Contest(qrels=str(labels)).qrels() == Qrels(both)  # labels alone are enough to score with
    labels.write_text('{"eval_id": 7, "relevant": []}\n{"eval_id": 8, "relevant": {}}\n')
    assert Contest(path=str(tmp_path), qrels=str(labels)).qrels() == Qrels({"7": {}, "8": {}}, abstention=True)


@pytest.fixture
def beir(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "T", "text": "x"}\n{"_id": "d2", "text": "y"}\n')
    (tmp_path / "queries.jsonl").write_text(
        "".join(f'{{"_id": "q{i}", "text": "t", "metadata": {{}}}}\n' for i in range(4))
    )
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq3\td2\t-1\n")
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td1\t1\n")
    return tmp_path


def test_beir(beir):
    source = Beir(path=str(beir))
    assert list(source.documents()) == [Document("d1", "x", "T"), Document("d2", "y")]
    assert next(iter(source.documents())).indexed_text == "T x"
    # grade 0 is judged and not relevant, -1 pooled and unjudged: q3 stays, and needs a document that is not there
    assert source.qrels() == Qrels(
        {"q1": {"d1": 2.0}, "q3": {}},
        abstention=False,
        not_relevant={"q1": frozenset({"d2"})},
        pooled={"q3": frozenset({"d2"})},
        unmet=frozenset({"q3"}),
    )
    assert [query.query_id for query in source.queries()] == ["q1", "q3"]  # those of the split
    assert [query.query_id for query in Beir(path=str(beir), split="dev").queries()] == ["q0"]


def test_beir_without_labels_has_all_queries_and_may_be_gzipped(beir):
    with pytest.raises(BadInput, match=r"train\.tsv: there is no such file\. Choose dataset\.split from: dev, test"):
        Beir(path=str(beir), split="train").qrels()
    for path in (beir / "corpus.jsonl", beir / "qrels" / "test.tsv"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(checked_dataset(Beir(path=str(beir)), "b").documents) == 2
    (beir / "qrels").rename(beir / "no")
    assert Beir(path=str(beir)).qrels() is None
    assert len(Beir(path=str(beir)).queries()) == 4


def labelled(folder, labels):
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{labels}")
    return checked_dataset(Beir(path=str(folder)), "b")


def test_labels_of_unknown_queries_and_relevant_documents_are_refused(beir):
    with pytest.raises(BadInput, match=r"qrels/test\.tsv:2: labels name 1 query .*: z"):
        labelled(beir, "z\td1\t0\n")
    parquet(beir / "corpus.parquet", doc_id=["a"], contents=["x"])
    parquet(beir / "qa.parquet", qid=["1"], query=["x"], retrieval_gt=[[["b"]]])
    with pytest.raises(BadInput, match=r"qa\.parquet: labels name 1 document .*: b"):
        checked_dataset(Autorag(path=str(beir)), "a")


def test_documents_that_are_not_relevant_may_be_missing(beir):
    """BEIR qrels often judge documents that the corpus lacks: they cannot be ranked, and no run is refused for them."""
    assert labelled(beir, "q1\td1\t1\nq1\td8\t0\nq1\td9\t-1\n").notes == (
        "2 judged pairs of a query and a document, 2.0 per query; 1 of them relevant.",
        "1 pair of a query and a document: pooled, but not judged.",
        "2 documents named in the labels, but missing from the dataset (none is relevant): d8, d9.",
    )


def test_trec(tmp_path):
    path = tmp_path / "qrels"
    path.write_text("1 0 a 2\n1\t0\tb\t0\n2 0 c -1\n")
    source = Trec(qrels=str(path))
    assert source.qrels() == Qrels(
        {"1": {"a": 2.0}, "2": {}},
        abstention=False,
        not_relevant={"1": frozenset({"b"})},
        pooled={"2": frozenset({"c"})},
        unmet=frozenset({"2"}),
    )
    path.write_text("1 0 a 2\n1 0 b -2\n")  # a grade below -1 is no judgement either, as in trec_eval
    assert source.qrels() == Qrels({"1": {"a": 2.0}}, abstention=False, not_relevant={}, pooled={"1": frozenset({"b"})})
    for part in (source.documents, source.queries):
        with pytest.raises(BadInput, match=r"dataset=trec .*harness score"):
            part()


def test_squad(tmp_path):
    paragraphs = [
        {"context": "one", "qas": [{"id": "a", "question": "A?", "answers": []}]},
        {"context": "two", "qas": [{"id": "b", "question": "B?", "is_impossible": True}]},
    ]
    again = {"context": "one", "qas": [{"id": "c", "question": "C?", "is_impossible": False}]}
    data = [
        {"title": "New  York", "paragraphs": paragraphs},
        {"title": "Other", "paragraphs": [again, {"context": "three", "qas": []}]},
        {"paragraphs": [{"context": "four", "qas": []}]},
    ]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"version": "1", "data": data}))
    source = Squad(path=str(path))
    assert list(source.documents()) == [
        Document("New_York#1", "one", "New  York"),
        Document("New_York#2", "two", "New  York"),
        Document("Other#1", "three", "Other"),  # "one" again is the same document
        Document("untitled#1", "four"),
    ]
    assert source.queries() == [Query.of("a", "A?"), Query.of("b", "B?"), Query.of("c", "C?")]
    assert source.qrels() == Qrels({"a": {"New_York#1": 1.0}, "c": {"New_York#1": 1.0}}, abstention=False)


def test_autorag(tmp_path):
    parquet(tmp_path / "corpus.parquet", doc_id=["a", "b", "c"], contents=["x", "y", ""], metadata=[{"n": 1}] * 3)
    parquet(
        tmp_path / "qa.parquet", qid=[3, 1, 2], query=["p", "q", "r"], retrieval_gt=[[["a", "b"], ["c", "a"]], [[]], []]
    )
    source = Autorag(path=str(tmp_path))
    assert list(source.documents()) == [Document("a", "x"), Document("b", "y"), Document("c", "")]
    assert source.queries()[0] == Query("3", (Turn("user", "p"),), 3)
    assert source.qrels() == Qrels({"3": {"a": 1.0, "b": 1.0, "c": 1.0}, "1": {}, "2": {}}, abstention=True)
    parquet(tmp_path / "qa.parquet", qid=["1"], query=["p"], retrieval_gt=[["a", "b"]])  # not nested
    assert Autorag(path=str(tmp_path)).qrels().grades == {"1": {"a": 1.0, "b": 1.0}}


# ---- what is refused: (reader, part, content, what the message must say after the file's name)

C, B, T, S = "contest", "beir", "trec", "squad"
MALFORMED = [
    (C, "documents", "", r": the file holds no rows"),
    (C, "documents", '{"docid": "d1", "content": "가"', r":1: broken JSON .*column 31.*Each line must be one"),
    (C, "documents", f"[{DOCUMENT}]", r":1: this is a JSON array, but each line must be an object.*jq -c \.\[\]"),
    (C, "documents", '"d1"', r":1: 'd1' is not a JSON object"),
    (C, "documents", '{"docid": NaN, "content": ""}', r":1: NaN is not a JSON number"),
    (C, "documents", '{"docid": "1", "docid": "2", "content": ""}', r":1: the key 'docid' occurs twice"),
    (C, "documents", '{"docid": "1", "content": "\\ud800"}', r":1: an unpaired surrogate"),
    (C, "documents", "[" * 100_000, r":1: this is a JSON array"),
    (C, "documents", '{"a":' * 100_000, r":1: the JSON is nested too deeply"),
    (C, "documents", '{"docid": ' + "9" * 5000 + ', "content": ""}', r":1: .*4300 digits"),
    (C, "documents", DOCUMENT.encode() + b"\n\xed\xa0\x80", r":2: byte 0xed is not UTF-8\. Save the file as UTF-8"),
    (C, "documents", gzip.compress(DOCUMENT.encode() * 99, mtime=0)[:-9], r":1: cannot be read .*Is the file complete"),
    (C, "documents", '{"contents": "가", "docid": "d1"}', r":1: content is missing \(fields here: contents, docid\)\. "
     r"There is 'contents'\. Did you mean 'content'\?"),
    (C, "documents", "{}", r":1: docid is missing \(fields here: none\)"),
    (C, "documents", '{"docid": "", "content": ""}', r":1: docid is '', but an id must be non-empty"),
    (C, "documents", '{"docid": "d", "content": 5}', r":1: content is 5, but must be text"),
    (C, "documents", '{"docid": "d", "content": "", "src": 5}', r":1: src is 5, but must be text"),
    (C, "documents", DOCUMENT + "\n\n" + DOCUMENT, r":3: docid 'd1' is already at .*f:1\."),
    (C, "documents", '{"docid": 1, "content": ""}\n{"docid": "1", "content": ""}', r":2: docid '1' is already"),
    (C, "queries", '{"eval_id": 7, "msg": "왜?"}', r":1: msg is '왜\?', but must be a list"),
    (C, "queries", '{"eval_id": 7, "msg": []}', r":1: msg has no user turn"),
    (C, "queries", '{"eval_id": 7, "msg": ["왜?"]}', r":1: msg contains '왜\?', but a turn must be an object"),
    (C, "queries", '{"eval_id": 7, "msg": [{"role": "usr", "content": "가"}]}', r":1: role 'usr'.*mean 'user'"),
    (C, "queries", '{"eval_id": 7, "msg": [{"role": "user"}]}', r":1: content is missing \(fields here: role\)"),
    (C, "qrels", '{"eval_id": 7, "relevent": []}', r":1: relevant is missing .*Did you mean 'relevant'"),
    (C, "qrels", '{"eval_id": 7, "relevant": "d1"}', r":1: relevant is 'd1', but must be a list of ids or {docid:"),
    (C, "qrels", '{"eval_id": 7, "relevant": {"d1": 1e999}}', r":1: 1e999 is too large for a number"),
    (C, "qrels", '{"eval_id": 7, "relevant": {"d1": 1' + "0" * 400 + "}}", r":1: the grade of 'd1' is 10000"),
    (C, "qrels", '{"eval_id": 7, "relevant": {"": 1}}', r":1: an id in relevant is ''"),
    (B, "documents", '{"id": "d", "text": "t"}', r":1: _id is missing .*There is 'id'\. Did you mean '_id'"),
    (B, "queries", '{"_id": "q", "text": ["t"]}', r":1: text is \['t'\], but must be text"),
    ("tsv", "qrels", "query-id\tcorpus-id\tscore\n", r": the file holds no rows"),
    ("tsv", "qrels", "q\td\t1\nq\te\t1\n", r":1: this is a label, but .* header query-id, corpus-id, score\."),
    ("tsv", "qrels", "query-id corpus-id score\nq d 1\n",
     r":1: 1 fields, but three are needed, separated by tabs: query-id"),
    ("tsv", "qrels", "query-id\tcorpus-id\tscore\nq\td\n", r":2: 2 fields"),
    ("tsv", "qrels", "query-id\tcorpus-id\tscore\nq\t \t1\n", r":2: the document id is ' '"),
    ("tsv", "qrels", "query-id\tcorpus-id\tscore\nq\td\t1\nq\td\t0\n", r":3: the label of .* is already at .*:2"),
    (T, "qrels", "1 0 a 1\n1 a 1\n", r":2: 3 fields, but four are needed: query_id iteration doc_id grade"),
    (T, "qrels", "1 0 a 1e9\n", r":1: grade 1e\+09 is too large: the maximum is 1,000,000"),
    (T, "qrels", "1 0 a 1_0\n", r":1: grade '1_0' is not a finite number"),
    (T, "qrels", "1 0 a 1\n2 0 a 1\n1 0 a 1\n", r":3: the label of \('1', 'a'\) is already at .*:1"),
    (S, "documents", '{\n"data": [\n', r":\d: broken JSON \(Expecting value"),
    (S, "documents", "[]", r": the file must be one JSON object"),
    (S, "documents", '{"date": []}', r": data is missing .*Did you mean 'data'"),
    (S, "documents", '{"data": {}}', r": data is \{\}, but must be a list"),
    (S, "documents", '{"data": [1]}', r":data\[0\] is 1, but must be an object"),
    (S, "documents", '{"data": [{"title": "t"}]}', r":data\[0\]: paragraphs is missing"),
    (S, "documents", '{"data": [{"paragraphs": [{"qas": []}]}]}', r":data\[0\]\.paragraphs\[0\]: context is missing"),
    (S, "documents", json.dumps(squad()), r": the file holds no rows"),  # a context without any question
    (S, "queries", json.dumps(squad({"question": "?"})), r":data\[0\]\.paragraphs\[0\]\.qas\[0\]: id is missing"),
    (S, "queries", json.dumps(squad(*[{"id": "a", "question": "?"}] * 2)),
     r":data\[0\]\.paragraphs\[0\]\.qas\[1\]: question id 'a' is already at .*qas\[0\]"),
    (S, "qrels", json.dumps(squad({"id": "a", "question": "?", "is_impossible": "no"})), r".*: is_impossible is 'no'"),
]  # fmt: skip
READERS = {
    C: lambda path: Contest(documents=path, queries=path, qrels=path),
    B: lambda path: Beir(documents=path, queries=path),
    "tsv": lambda path: Beir(qrels=path),
    T: lambda path: Trec(qrels=path),
    S: lambda path: Squad(path=path),
}


@pytest.mark.parametrize(("reader", "part", "content", "expected"), MALFORMED)
def test_malformed_files_are_refused_with_place_and_remedy(tmp_path, reader, part, content, expected):
    path = tmp_path / "f"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match="^.*/f" + expected) as error:
        read(READERS[reader](str(path)), part)
    assert len(str(error.value)) < 600


PARQUET = [
    ("documents", {"doc_id": ["a", "a"], "contents": ["x", "y"]}, r":row 2: doc_id 'a' is already at .*:row 1"),
    ("documents", {"doc_id": ["a"], "contents": [None]}, r":row 1: contents is None, but must be text"),
    ("documents", {"doc_id": ["a"], "content": ["x"]}, r": contents is missing .*Did you mean 'contents'"),
    ("queries", {"qid": ["a"]}, r": query is missing"),
    ("qrels", {"qid": ["a", "a"], "retrieval_gt": [[["x"]]] * 2}, r":row 2: qid 'a' is already"),
    ("qrels", {"qid": ["a"], "retrieval_gt": ["x"]}, r":row 1: retrieval_gt is 'x', but must be a list"),
    ("qrels", {"qid": ["a"], "retrieval_gt": [[[None]]]}, r":row 1: an id in retrieval_gt is None"),
]


@pytest.mark.parametrize(("part", "columns", "expected"), PARQUET)
def test_malformed_parquet_is_refused(tmp_path, part, columns, expected):
    path = parquet(tmp_path / "f.parquet", **columns)
    with pytest.raises(BadInput, match=r"f\.parquet" + expected):
        read(Autorag(corpus=path, qa=path), part)


def test_parquet_without_rows_or_not_parquet(tmp_path):
    import pyarrow

    empty = pyarrow.array([], pyarrow.string())
    path = parquet(tmp_path / "f", doc_id=empty, contents=empty)
    with pytest.raises(BadInput, match="f: the file holds no rows"):
        list(Autorag(corpus=path).documents())
    (tmp_path / "f").write_text("doc_id,contents\n")
    with pytest.raises(BadInput, match="f: this is not a readable parquet file"):
        list(Autorag(corpus=path).documents())


NOT_THERE = [  # {}: a folder with documents.jsonl and an empty folder `data`
    (Contest, {"documents": "{}/document.jsonl"}, r"document\.jsonl: there is no such file\. Did you mean 'documents"),
    (Contest, {"documents": "{}/nowhere/d.jsonl"}, r"there is no folder .*nowhere\. Check the path"),
    (Contest, {"documents": "{}"}, r"is a folder, but a file is expected"),
    (Contest, {"documents": "a\0b"}, r"cannot be opened"),
    (Contest, {"documents": "{}/pipe"}, r"pipe is a device or a pipe"),
    (Contest, {}, r"dataset\.documents is not given\. Give dataset\.documents=FILE, or dataset\.path"),
    (Beir, {"path": "{}/datas"}, r"dataset\.path=.*/datas: there is no such folder\. Did you mean 'data'"),
    (Contest, {"path": "{}/documents.jsonl"}, r"dataset\.path=.*documents\.jsonl: this is a file, not a folder"),
    (Beir, {"path": "{}/data"}, r"corpus\.jsonl: there is no such file\. .*data contains: nothing"),
]


@pytest.mark.parametrize(("reader", "given", "message"), NOT_THERE)
def test_files_that_are_not_there(tmp_path, reader, given, message):
    (tmp_path / "documents.jsonl").write_text(DOCUMENT)
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=message):
        list(reader(**{key: value.format(tmp_path) for key, value in given.items()}).documents())


ids = st.text(string.ascii_letters + "가나다#:-_.", min_size=1, max_size=6)
grades = st.floats(min_value=0, max_value=1e6, exclude_min=True, allow_subnormal=True)


@given(st.dictionaries(ids, st.dictionaries(ids, grades, max_size=4), min_size=1, max_size=5))
def test_any_labels_come_back(tmp_path, labels):
    path = tmp_path / "f"
    path.write_text("".join(json.dumps({"eval_id": q, "relevant": r}) + "\n" for q, r in labels.items()), "utf-8")
    assert Contest(qrels=str(path)).qrels().grades == labels
    judged = {query_id: relevant for query_id, relevant in labels.items() if relevant}
    path.write_text("".join(f"{q} 0 {d} {g!r}\n" for q, r in judged.items() for d, g in r.items()), "utf-8")
    if judged:
        assert Trec(qrels=str(path)).qrels().grades == judged


REAL = {  # name -> source, numbers of documents, queries, labelled queries and relevant documents, notes
    "contest": (
        lambda data: Contest(path=f"{data}/science_qa", qrels=f"{data}/science_qa/qrels_public.jsonl"),
        (4272, 220, 110, None),
        (
            "110 of 220 queries are unlabelled: they are searched and exported, but not scored.",
            "10 of 110 labelled queries need no retrieval.",
        ),
    ),
    "korquad": (lambda data: Squad(path=f"{data}/korquad/KorQuAD_v1.0_dev.json"), (961, 5774, 5774, 5774), ()),
    "cranfield": (
        lambda data: Beir(path=f"{data}/cranfield"),
        (1400, 225, 225, 1837 - 225),  # 1,837 judgements, 225 of them of grade 0
        (
            "2 of 1,400 documents are empty: 471, 995.",
            "1,837 judged pairs of a query and a document, 8.2 per query; 1,612 of them relevant.",
        ),
    ),
    "autorag": (lambda data: Autorag(path=f"{data}/autorag_ko"), (55, 20, 20, None), ()),
}


@pytest.mark.parametrize("name", REAL)
def test_real_data(real_data, name):
    source, (documents, queries, labelled, relevant), notes = REAL[name]
    dataset = checked_dataset(source(real_data), name)
    grades = dataset.qrels.grades
    assert (len(dataset.documents), len(dataset.queries), len(grades)) == (documents, queries, labelled)
    assert relevant in (None, sum(map(len, grades.values())))
    assert dataset.notes == notes
    if name == "korquad":  # the answer to a question is in its relevant context
        article = json_file(real_data / "korquad" / "KorQuAD_v1.0_dev.json")["data"][3]
        question = article["paragraphs"][-1]["qas"][0]
        [document] = [dataset.by_id[doc_id] for doc_id in grades[question["id"]]]
        assert question["answers"][0]["text"] in document.text
        assert document.title == article["title"]


def test_real_trec_labels(real_data):
    qrels = Trec(qrels=str(real_data / "trec_eval" / "qrels.test")).qrels()
    assert len(qrels.grades) == 3
    assert sum(map(len, qrels.grades.values())) == 561  # num_rel of trec_eval's own output
