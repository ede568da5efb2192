"""A data set's parts fit together, its fingerprints follow its content, and its queries are searched as asked."""

import gzip
import json
from dataclasses import replace

import pytest

from harness.data.contest import Contest, Sample
from harness.data.dataset import Dataset, checked_dataset, search_queries
from harness.data.qrels import Qrels
from harness.errors import BadInput
from retrievers.base import Document, Query, Turn

FILES = ("documents.jsonl", "eval.jsonl", "qrels.jsonl")


def read(folder):
    return checked_dataset(Contest(path=str(folder)), "toy")


def test_documents_ascend_queries_keep_their_order_and_notes_say_what_is_unusual(toy):
    with (toy / "documents.jsonl").open("a") as file:
        file.writelines(f'{{"docid": "c{i}", "content": " "}}\n' for i in range(7))
    with (toy / "eval.jsonl").open("a") as file:
        file.write('{"eval_id": 9, "msg": [{"role": "user", "content": ""}]}\n')
    dataset = read(toy)
    assert [document.doc_id for document in dataset.documents] == [*(f"c{i}" for i in range(7)), "d1", "d2", "d3"]
    assert [query.query_id for query in dataset.queries] == ["7", "3", "5", "9"]
    assert dataset.notes == (
        "7 of 10 documents are empty: c0, c1, c2, c3, c4 and 2 more.",
        "1 of 4 queries are empty: 9.",
        "1 of 4 queries are unlabelled: they are searched and exported, but not scored.",
        "1 of 3 labelled queries need no retrieval.",
    )


def rewrite(folder, change):
    for name in FILES:
        rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
        (folder / name).write_bytes(change(name, rows))


def plain(rows, end="\n", **how):
    return "".join(json.dumps(row, **{"ensure_ascii": False, **how}) + end for row in rows).encode()


SAME = {
    "CRLF": lambda name, rows: plain(rows, "\r\n"),
    "BOM": lambda name, rows: b"\xef\xbb\xbf" + plain(rows),
    "blank lines": lambda name, rows: b"\n" + plain(rows, "\n \n"),
    "no end of the last line": lambda name, rows: plain(rows).rstrip(),
    "gzip": lambda name, rows: gzip.compress(plain(rows)),
    "order of keys": lambda name, rows: plain([dict(reversed(row.items())) for row in rows]),
    "escapes and spaces": lambda name, rows: plain(rows, ensure_ascii=True, separators=(" ,", ":\t")),
    "more fields": lambda name, rows: plain([{**row, "more": [1.5]} for row in rows]),
    "order of documents and labels": lambda name, rows: plain(rows if name == "eval.jsonl" else rows[::-1]),
    "ids as text": lambda name, rows: plain([{k: str(v) if k == "eval_id" else v for k, v in r.items()} for r in rows]),
    "source": lambda name, rows: plain([{**row, "src": "other"} for row in rows]),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_the_same_content_has_the_same_fingerprints(toy, change):
    before = read(toy).fingerprints
    rewrite(toy, change)
    assert read(toy).fingerprints == before


def changed(**parts):
    base = {
        "name": "n",
        "documents": (Document("a", "x", "t"), Document("b", "y")),
        "queries": (Query.of("1", "p"), Query.of("2", "q")),
        "qrels": Qrels({"1": {"a": 1.0}, "2": {}}),
    }
    return Dataset(**{**base, **parts}).fingerprints


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("documents", (Document("a", "x", "t"), Document("b", "y "))),  # text
        ("documents", (Document("a", "x"), Document("b", "y"))),  # title
        ("documents", (Document("a", "t x"), Document("b", "y"))),  # the same indexed text, differently made
        ("documents", (Document("c", "x", "t"), Document("b", "y"))),  # id
        ("documents", (Document("a", "x", "t"),)),
        ("queries", (Query.of("2", "q"), Query.of("1", "p"))),  # order
        ("queries", (Query.of("1", "p"), Query.of("2", "q?"))),
        ("queries", (Query("1", (Turn("user", "p"), Turn("assistant", "a"))), Query.of("2", "q"))),
        ("qrels", Qrels({"1": {"a": 2.0}, "2": {}})),
        ("qrels", Qrels({"1": {"a": 1.0}})),  # unlabelled is not `needs no retrieval`
        ("qrels", Qrels({"1": {"a": 1.0}, "2": {}}, abstention=False)),
    ],
)
def test_other_content_has_other_fingerprints(part, value):
    before, after = changed(), changed(**{part: value})
    assert [name for name in before if before[name] != after[name]] == [part]
    assert all(len(value) == 64 for value in after.values())


def test_fingerprints_hold_across_versions():
    """Written down once: caches and submissions of earlier days rest on them."""
    assert changed()["documents"] == "85c8cecba39c04b12fac66175a760c80fd5e0282d360c927220c30ebb02fb691"
    assert changed(qrels=None)["qrels"] is None
    assert changed(qrels=Qrels({"2": {}, "1": {"a": 1}})) == changed()
    sample = checked_dataset(Sample(), "sample").fingerprints["qrels"]
    assert sample == "9d54bd0918aa8d7e3c150ff2de074d587bae5f89bca48beed87a6cda50810f23"
    trec = Qrels({"1": {"a": 1.0}}, abstention=False)  # no zeros: as before they were read
    assert changed(qrels=replace(trec, not_relevant={})) == changed(qrels=trec)
    assert changed(qrels=replace(trec, not_relevant={"1": frozenset("b")})) != changed(qrels=trec)


def test_dangling_labels_are_refused(toy):
    labels = toy / "qrels.jsonl"
    labels.write_text('{"eval_id": 7, "relevant": ["d9", "d1"]}\n{"eval_id": 3, "relevant": ["d8"]}\n')
    with pytest.raises(BadInput, match=r"qrels\.jsonl:2: labels name 2 documents that .* not have: d8, d9\."):
        read(toy)
    labels.write_text('{"eval_id": 77, "relevant": []}\n{"eval_id": 3, "relevant": ["d2"]}\n')
    with pytest.raises(BadInput, match=r"qrels\.jsonl:1: labels name 1 query .* not have: 77\. Remove"):
        read(toy)


SAID = [("system", "s"), ("user", "one"), ("assistant", "no"), ("user", "two"), ("assistant", "end")]
TALK = Dataset("talk", (), (Query("1", tuple(Turn(*one) for one in SAID), 1), Query.of("x", "alone")), None)


def searched(*how):
    found = search_queries(TALK, *how)
    assert [(query.query_id, query.native_id) for query in found] == [("1", 1), ("x", None)]
    assert all(len(query.turns) == 1 for query in found)
    return [query.text for query in found]


def test_the_text_of_a_query(tmp_path):
    assert searched() == ["one two", "alone"]
    assert searched("last") == ["two", "alone"]
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"eval_id": "x", "standalone_query": "", "topk": []}\n{"eval_id": "1", "standalone_query": "both"}\n'
    )
    assert searched("file", str(path)) == ["both", ""]


ONE, X = '{"eval_id": 1, "standalone_query": "a"}\n', '{"eval_id": "x", "standalone_query": "b"}\n'


@pytest.mark.parametrize(
    ("content", "how", "expected"),
    [
        (ONE, ("file", "r"), r"r lacks 1 of 2 queries: x\. Add a line for each"),
        (ONE + X + ONE.replace("1", "2"), ("file", "r"), r"r:3: the dataset has no query '2'"),
        (ONE + X.replace("standalone_query", "query"), ("file", "r"), r"r:2: standalone_query is missing"),
        ("", ("file",), r"query\.text=file needs query\.file=FILE"),
        ("", ("last", "r"), r"query\.file=r is not read with query\.text=last"),
        ("", ("lastt",), r"query\.text='lastt' is not one of user_turns, last, file\. Did you mean 'last'"),
    ],
)
def test_texts_of_queries_that_do_not_fit(tmp_path, monkeypatch, content, how, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r").write_text(content)
    with pytest.raises(BadInput, match=expected):
        search_queries(TALK, *how)


def test_real_conversations_and_rewrites(real_data):
    folder = real_data / "science_qa"
    dataset = checked_dataset(Contest(path=str(folder)), "contest")
    whole, last = search_queries(dataset), search_queries(dataset, "last")
    assert sum(a.text != b.text for a, b in zip(whole, last, strict=True)) == 20
    file = search_queries(dataset, "file", str(folder / "sample_submission.csv"))
    assert [query.native_id for query in file] == [query.native_id for query in dataset.queries]
    assert file[0].text == "나무의 분류 방법"
