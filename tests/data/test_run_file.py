"""Rankings from a file: read as `harness score` reads them, refused with file and line, and used like any other."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config.components import component_identity
from harness.data.predictions import read_predictions
from harness.data.run_file import RunFile, read_lists
from harness.errors import BadInput
from retrievers.base import Document, Query

DOCUMENTS = [Document(doc_id, "x") for doc_id in ("a", "b", "c", "d")]
QUERIES = [Query.of("q2", "?"), Query.of("q1", "?")]
TREC = "q1 Q0 b 1 2.0 x\nq1 Q0 a 2 2.0 x\nq1 Q0 c 3 -1.5 x\nq2 Q0 d 1 3 x\nelse Q0 a 1 1 x\n"
TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word")


def row(query_id, topk, scores=None, **others):
    given = {} if scores is None else {"references": [{"score": score, "content": "x"} for score in scores]}
    return json.dumps({"eval_id": query_id, "topk": topk, **given, **others}) + "\n"


@pytest.fixture
def searched(tmp_path):
    """The ranking of a file with this text, as a dictionary: searched(text, k, **arguments)."""

    def search(text, k=4, **arguments):
        (tmp_path / "run.txt").write_text(text)
        (tmp_path / "index").mkdir(exist_ok=True)
        RunFile(str(tmp_path / "run.txt"), **arguments).index(DOCUMENTS, tmp_path / "index")
        second = RunFile(str(tmp_path / "run.txt"), **arguments)
        second.load(tmp_path / "index")
        return second.search(QUERIES, k).to_dict()

    return search


def below(score):
    return float(np.nextafter(score, -np.inf))


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        # trec_eval's order: by score, ties by doc_id descending; of a tie, the lower ranks score a little less
        (TREC, {}, {"q2": {"d": 3.0}, "q1": {"b": 2.0, "a": below(2.0), "c": -1.5}}),
        (TREC, {"scores": "rank"}, {"q2": {"d": 1.0}, "q1": {"b": 1.0, "a": 1 / 2, "c": 1 / 3}}),
        # contest rows: the row's order, here against the doc_ids, with its scores
        (row("q1", ["c", "a", "b"], [1, 1, 1]) + row("q2", [], []), {},
         {"q2": {}, "q1": {"c": 1.0, "a": below(1.0), "b": below(below(1.0))}}),
        (row("q1", ["c", "a"]) + row("q2", ["b"]), {}, {"q2": {"b": 1.0}, "q1": {"c": 1.0, "a": 0.5}}),
        (row("q1", ["c", "a"], [1, 2]) + row("q2", []), {"scores": "rank"}, {"q2": {}, "q1": {"c": 1.0, "a": 0.5}}),
        (row("q1", ["a"], [7]), {"missing": "empty"}, {"q2": {}, "q1": {"a": 7.0}}),
    ],
)  # fmt: skip
def test_lists_in_the_order_and_with_the_scores_of_the_file(searched, text, arguments, expected):
    found = searched(text, **arguments)
    assert found == expected
    assert [list(row) for row in found.values()] == [list(row) for row in expected.values()]


def test_a_list_is_cut_at_the_depth_and_a_shallower_one_is_told(searched, caplog):
    assert searched(TREC, 1) == {"q2": {"d": 3.0}, "q1": {"b": 2.0}}
    assert not caplog.messages
    searched(TREC, 100)
    assert re.search(r"run\.txt: its longest list has 3 documents, but depth=100\.", caplog.text)
    searched(row("q1", ["a"]), 1, missing="empty")
    assert "1 of 2 queries have no list and get an empty one" in caplog.text


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-1e300, 1e300).map(lambda x: round(x, 1)), min_size=1))
def test_any_trec_run_is_ordered_as_harness_score_orders_it(tmp_path_factory, scores):
    file = tmp_path_factory.getbasetemp() / "run.trec"
    file.write_text("".join(f"q Q0 {doc_id} 1 {score!r} x\n" for doc_id, score in scores.items()))
    read = read_predictions(file)
    [found] = read_lists(file).values()
    assert list(found) == [read.doc_ids[doc] for doc in read.docs[0]]
    assert all(later < earlier for earlier, later in pairwise(found.values()))


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", {}, r"run\.txt: the file holds no rows"),
        (TREC.replace("Q0 c", "Q0 z"), {}, r"run\.txt:3: the dataset does not have these documents .*: z\."),
        (TREC.replace("q2", "q9"), {}, r"no list for 1 of 2 queries: q2\. It has .*retriever\.NAME\.missing=empty"),
        (TREC.replace("q", "p"), {"missing": "empty"}, r"no list for 2 of 2 queries.*Is the file for this dataset\?"),
        (row("q1", ["a", "b", "a"]), {}, r"run\.txt:1: topk names a twice"),
        (row("q1", ["a"]) + row("q2", ["z"]), {}, r"run\.txt:2: the dataset does not have these documents .*: z\."),
        (row("q1", ["a", "b"], [1, 2]), {}, r"run\.txt:1: 'b' scores 2\.0, more than 'a' above it\..*scores=rank"),
        (row("q1", ["a"], [1]) + row("q2", ["b"]), {}, r"run\.txt:2: not every document has a score, but .*run\.txt:1"),
        (row("q1", ["a", "b"], [1]) + row("q2", ["b"], [1]), {}, r"run\.txt:1: not every document has a score"),
    ],
)  # fmt: skip
def test_what_a_file_cannot_mean_is_refused(searched, text, arguments, message):
    with pytest.raises(BadInput, match=message):
        searched(text, **arguments)


@pytest.mark.parametrize("references", [5, "ab", {"score": 1}, [1, 2], [{"score": True}, {"score": "1"}]])
def test_references_that_hold_no_scores_do_not_count(searched, references):
    found = searched(row("q1", ["b", "a"], references=references) + row("q2", []))
    assert found == {"q2": {}, "q1": {"b": 1.0, "a": 0.5}}


def test_the_content_identifies_a_file_and_its_path_does_not(tmp_path):
    (tmp_path / "one").write_text(TREC)
    (tmp_path / "other").write_text(TREC)
    nodes = [{"_target_": "retriever/file", "path": str(tmp_path / name)} for name in ("one", "other")]
    first, second = map(component_identity, nodes)
    assert first == second
    (tmp_path / "other").write_text(TREC + "\n")
    assert component_identity(nodes[1]) != first


@pytest.fixture
def mate(harness, toy):
    """Calls a command with a team-mate's file for the toy data: mate(verb, *words); bad.trec names another document."""
    (toy.parent / "mate.csv").write_text(row(7, ["d1", "d3", "d2"], [2, 1, 0]) + row(3, ["d2"], [3]) + row(5, []))
    (toy.parent / "b.trec").write_text("7 Q0 d3 1 5 x\n3 Q0 d1 1 4 x\n5 Q0 d1 1 1 x\n")
    (toy.parent / "bad.trec").write_text("7 Q0 zz 1 5 x\n3 Q0 d1 1 4 x\n5 Q0 d1 1 1 x\n")
    return lambda verb, *words: harness(verb, *TOY, "retriever=file", "retriever.file.path=mate.csv", *words)


def test_a_run_scores_as_harness_score_does_and_is_not_timed(harness, mate):
    ours = mate("run", "tracking=none", "format=json").json
    theirs = harness("score", *TOY[:2], "tracking=none", "format=json", "predictions=mate.csv").json
    shared = [name for name in theirs["metrics"] if name.endswith("@3")]
    assert len(shared) > 5
    assert [ours["metrics"][name] for name in shared] == [theirs["metrics"][name] for name in shared]
    assert not [name for name in ours["measured"] if name.startswith("ms_per_query")]


def test_files_fuse_beside_each_other_and_beside_retrievers(mate, tmp_path):
    more = "+retriever.other={_target_: retriever/file, path: b.trec}"
    words = ("retriever=[bm25,file]", more, "+fusion.weights.file=0.5", "depth=3", "tracking=none", "format=json")
    done = mate("run", *words, f"store.path={tmp_path}/store")  # a cached ranking is not timed
    assert "ms_per_query/bm25" in done.json["measured"]
    assert "ms_per_query" not in done.json["measured"], "the time in all is unknown"
    assert "but depth=3" in done.err


@pytest.mark.slow
def test_files_are_swept_and_read_once(mate, tmp_path, tracker):
    words = ("retriever.file.path=mate.csv,b.trec", "gate=none,score", "format=json")
    plan = mate("sweep", *words, "dry_run=true", f"store.path={tmp_path}/store").json
    assert plan["retrievals"] == {"compute": 2, "cached": 0}
    found = mate("sweep", *words).json
    assert found["trials"]["finished"] == 4
    best = tracker.run(found["best"]["run_id"])
    assert (best.params["retriever"], best.params["retriever.file.path"]) == ("file", f"{tmp_path}/mate.csv")


def test_a_run_of_a_file_is_reproduced_until_the_file_changes(harness, mate, tmp_path, monkeypatch):
    run_id = mate("run", "format=json").json["run_id"]
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    again = ("reproduce", f"run={run_id}", "format=json", f"outputs={tmp_path}/outputs")
    assert harness(*again).json["reproduced"]
    file = tmp_path / "mate.csv"
    file.write_text(file.read_text().replace('"d1", "d3"', '"d3", "d1"'))
    done = harness(*again)
    assert done.code == 2
    assert f"{file} has changed since the run: its sha256 was" in done.err


UNKNOWN = "bad.trec:1: the dataset does not have these documents of the file: zz"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "retriever.file.path=bad.trec", "experiment_name=e"), UNKNOWN),
        (("sweep", "retriever.file.path=bad.trec", "experiment_name=e"), UNKNOWN),
        (("search", "query=달"), "A search takes new queries, but retriever.file only has rankings made elsewhere"),
        (("run", "gate=score", "gate.signal=background"), "signal `background` searches for random queries, but"),
        (("run", "retriever.file.missing=skip"), "retriever.file.missing='skip' is not one of error, empty"),
    ],
)
def test_what_a_file_cannot_do_is_refused_before_anything_begins(mate, tracker, words, message):
    done = mate(*words)
    assert done.code == 2
    assert message in done.err
    assert tracker.runs("e", {}) == []
