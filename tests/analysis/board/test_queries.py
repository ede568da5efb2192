"""What a board shows of single queries, of runs of the toy dataset: worked by hand, and where data are missing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from fakes import FakeTracker
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from unpacking import unpacked, unpacked_places

from harness.analysis.board import queries
from harness.analysis.board.lists import Retrieved, Returned
from harness.analysis.board.queries import (
    DEPTH,
    DETAILED,
    LISTED,
    Collected,
    ReadAgain,
    details,
    packed_matrix,
    packed_places,
)
from harness.analysis.board.runs import LOSSES, BoardRuns
from harness.analysis.ranking import RankedRun
from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.tracking.tracker import LoggedRun
from retrievers.base import Document, Query, Turn

IDS = ("3", "7")
DATASET = Dataset(
    "toy",
    tuple(Document(f"d{n}", f"글 {n}", "제목" if n == 1 else "") for n in range(1, 9)),
    (Query.of("3", "물은 몇 도에서 끓어?"),
     Query("7", (Turn("user", "달"), Turn("assistant", "네"), Turn("user", "왜?")))),
    Qrels({"3": {"d2": 1.0}, "7": {"d7": 2.0, "d8": 1.0}}),
)  # fmt: skip


def board(count=2, **tags):
    """Runs of two queries that all have the same value."""
    every = {"harness.verb": "run"} | tags
    logged = [LoggedRun(f"{n:032x}", f"run {n}", "e", "FINISHED", {}, {}, every) for n in range(count)]
    runs = [RankedRun(one, None, name=f"r{n}") for n, one in enumerate(logged)]
    flags = np.zeros(2, bool)
    values = np.full((count, 2), 0.5)
    losses = np.full((count, 2), LOSSES.index("misranked"), np.int8)
    return BoardRuns("map@3", "all", tuple(runs), IDS, ~flags, flags, flags, values, losses)


def read(packed_text):
    return json.loads(unpacked(packed_text))


def documents(found):
    return [tuple(one) for block in found["documents"] for one in read(block)]


def shown(found, row):
    """What the page reads of a query: (about, list of each run, searched text of each run)."""
    content = found["queries"][row]
    about = read(content["about"])
    lists = [about["lists"][at - 1] if at else None for at in unpacked_places(content["lists"])]
    texts = [about["texts"][at - 1] if at else None for at in unpacked_places(content["texts"])]
    names = [doc_id for doc_id, _, _ in documents(found)]
    return about, [one and (one[0], [names[doc] for doc in one[1]]) for one in lists], texts


def test_lists_texts_and_what_a_gate_saw_by_hand():
    collected = Collected(board(), [ReadAgain(DATASET, DATASET.qrels.grades)])
    ranked = {f"d{n}": 9.0 - n for n in range(1, 9)}  # d1 first
    returned = {"3": Returned(2, ("d1", "d2"), (8.0, 7.0), "물"), "7": Returned(0, (), None, "달 왜")}
    collected.add(0, 0, returned, Retrieved({"3": ranked, "7": ranked}, {"3": 8.0, "7": 2.123456}))
    collected.add(1, 0, {"3": Returned(2, ("d1", "d2"), (0.123456, 0.1), "물")}, None)  # a trial without a row of 7
    found = collected.details([None, None], [])

    about, lists, texts = shown(found, 0)
    first = [f"d{n}" for n in range(1, DEPTH + 1)]
    assert lists == [(2, first), (2, ["d1", "d2"])]  # all that was found, of which 2 were returned; only the returned
    assert texts == ["물", "물"]
    assert about["scores"] == [[8.0, 7.0, 6.0, 5.0, 4.0], [0.12346, 0.1]]
    assert about["seen"] == {"0": [0, 8.0, [], 1], "1": [1, None, [], 0]}
    assert about["turns"] == [["user", "물은 몇 도에서 끓어?"]]

    about, lists, texts = shown(found, 1)
    assert lists == [(0, first), None]
    assert texts == ["달 왜", None]
    place = [doc_id for doc_id, _, _ in documents(found)].index
    assert about["seen"] == {"0": [0, 2.1235, [[place("d7"), 7], [place("d8"), 8]], 1]}  # relevant, below the first
    assert about["grades"] == {str(place("d7")): 2.0, str(place("d8")): 1.0}
    assert len(about["turns"]) == 3
    assert read(found["titles"]) == ["물은 몇 도에서 끓어?", "달 왜?"]
    assert documents(found)[place("d1")] == ("d1", "제목", "글 1")


def test_attributes_with_several_values_by_hand():
    """Query 3 has one turn and a script, 7 has two turns; both have no more than 5 words, so length has one value."""
    asked = tuple(replace(one, attributes={"한": "a"} if one.query_id == "7" else {}) for one in DATASET.queries)
    data = replace(DATASET, queries=asked)
    found = Collected(board(), [ReadAgain(), ReadAgain(data, data.qrels.grades)]).details([None, None], [])
    known = {name: (values, unpacked_places(at).tolist()) for name, values, at in found["attributes"]}
    assert known == {
        "asks": (["how many", "why"], [0, 1]),
        "relevant": (["1", "2-5"], [0, 1]),
        "turns": (["1", "2"], [0, 1]),
        "한": (["a", "(none)"], [1, 0]),
    }
    unmarked = Collected(board(), [ReadAgain(DATASET)]).details([None, None], [])  # the labels have changed
    assert "relevant" not in [name for name, *_ in unmarked["attributes"]]
    assert Collected(board(), [ReadAgain()]).details([None, None], [])["attributes"] == []


def test_equal_lists_of_many_runs_are_kept_once_and_only_the_best_runs_have_scores():
    runs = board(DETAILED + 3)
    collected = Collected(runs, [ReadAgain(DATASET, DATASET.qrels.grades)])
    for place in range(len(runs.runs)):
        collected.add(place, 0, {"3": Returned(1, ("d1",), (float(place),), "물")}, None)
    about, lists, _ = shown(collected.details([None] * len(runs.runs), []), 0)
    assert len(about["lists"]) == len(about["texts"]) == 1
    assert lists == [(1, ["d1"])] * len(runs.runs)
    assert len(about["scores"]) == len(about["seen"]) == DETAILED


def collected_of(data, returned):
    collected = Collected(board(1), [data])
    collected.add(0, 0, {"3": returned}, None)
    return collected.details([None], [])


def test_without_data_the_predictions_say_what_they_know():
    found = collected_of(ReadAgain(), Returned(1, ("d1",), None, "물", ("글",)))
    about, lists, _ = shown(found, 0)
    assert (about["turns"], about["grades"], lists) == (None, None, [(1, ["d1"])])
    assert (read(found["titles"]), documents(found)) == (["물", None], [("d1", "", "글")])


def test_a_long_list_of_documents_has_shorter_texts(monkeypatch):
    monkeypatch.setattr(queries, "TEXTS", 200)  # of 90 characters at least: two documents
    long = Dataset("x", tuple(Document(f"d{n}", "가" * 300) for n in range(1, 9)), DATASET.queries, None)
    found = collected_of(ReadAgain(long), Returned(3, ("d1", "d2", "d3")))
    assert [text and len(text) for _, _, text in documents(found)] == [90, 90, None]
    assert found["notices"] == [("cut", 1, "")]


def test_what_is_gone_is_said(tmp_path):
    runs, store = board(2), FakeTracker(folder=tmp_path)
    kept, gone = (one.run for one in runs.runs)
    store.write(kept.run_id, "predictions.jsonl", '{"eval_id": "3", "topk": ["d1"]}\n')
    found = details(runs, store, tmp_path)
    assert found["notices"] == [
        ("unread", 2, "scored files do not record their documents."),
        ("gone", 1, gone.short_id),
    ]
    assert shown(found, 0)[1] == [(1, ["d1"]), None]
    assert shown(found, 1)[1] == [None, None]


@pytest.mark.parametrize(
    ("changed", "kind", "why"),
    [
        ({}, None, ""),
        ({"data.qrels": "other"}, "unmarked", "The labels have changed since run 00000000."),
        ({"data.documents": "other"}, "unread", "the documents have changed"),
    ],
)
def test_data_that_have_changed_are_not_shown(monkeypatch, changed, kind, why):
    def load(run, source):
        if run.tags["data.documents"] == "other":
            raise BadInput("the documents have changed")
        return DATASET

    now = {f"data.{name}": sha256 for name, sha256 in DATASET.fingerprints.items()}
    monkeypatch.setattr(queries, "logged_config", lambda tracker, run: {"dataset": {"path": "toy"}})
    monkeypatch.setattr(queries, "load_unchanged", load)
    [data], places, notices = queries.read_again([one.run for one in board(3, **(now | changed)).runs], None)
    assert places == [0, 0, 0]  # read once for all
    assert [(one.kind, one.count, one.why) for one in notices] == ([(kind, 3, why)] if kind else [])
    assert (data.dataset is None) == (kind == "unread")
    assert (data.grades is None) == bool(kind)


# ---- What is packed comes back

NAN = float("nan")


def pairs(values, losses):
    """[R, Q] of the pairs that a browser reads."""
    content = packed_matrix(values, losses)
    cells = unpacked_places(content["cells"]).reshape(values.shape[::-1])
    return [[content["table"][cell] for cell in run] for run in cells.T]


def test_a_matrix_by_hand():
    values = np.array([[1.0, 0.5, NAN], [0.5, 0.5, NAN]])
    losses = np.array([[0, 4, 0], [4, 3, 0]])
    matrix = packed_matrix(values, losses)
    assert matrix["table"] == [(0.5, 3), (0.5, 4), (1.0, 0), (None, 0)]  # each pair once, by value, then by loss
    assert unpacked_places(matrix["cells"]).tolist() == [2, 1, 1, 0, 3, 3]  # a row for each query
    assert pairs(values, losses) == [[(1.0, 0), (0.5, 4), (None, 0)], [(0.5, 4), (0.5, 3), (None, 0)]]


@given(st.data())
def test_what_is_packed_comes_back(data):
    shape = data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))
    some = st.one_of(st.just(NAN), st.floats(-1, 1).map(lambda one: round(one, 6)))
    values = data.draw(arrays.arrays(float, shape, elements=some))
    losses = data.draw(arrays.arrays(np.int8, shape, elements=st.integers(0, 5)))
    expected = [[None if np.isnan(one) else one for one in row] for row in values]
    assert pairs(values, losses) == [[*zip(*row, strict=True)] for row in zip(expected, losses.tolist(), strict=True)]


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_places_come_back_in_the_fewest_bits(places):
    content = packed_places(np.array(places, np.int64))
    assert unpacked_places(content).tolist() == places
    assert content["bits"] == (8 if max(places, default=0) < 256 else 16 if max(places) < 65_536 else 32)


def test_values_that_are_too_many_lose_digits():
    """90,000 distinct values: listing each would be larger than the page may be."""
    values = np.linspace(0, 1, 90_000).reshape(90, 1000)
    found = pairs(values, np.zeros(values.shape, int))
    assert len({pair for run in found for pair in run}) == 10_001 <= LISTED
    shown = np.array(found)[..., 0]
    assert np.abs(shown - values).max() <= 0.5001e-4
