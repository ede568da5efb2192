"""Cutting texts into passages, and ranking documents by the best of them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrievers.base import BadInput, Document
from retrievers.dense import passages
from retrievers.dense.passages import Passages, best_documents, sentences


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Tables of short lines."""
    monkeypatch.setattr(passages, "SHORTEST", 20)


def cut(text):
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [""]),
        (" \n\t ", [""]),
        ("제목 하나", ["제목 하나"]),
        ("지구는 하루에 한 번 스스로 한 바퀴를 돈다. 그래서 낮과 밤이 날마다 번갈아 온다. ",
         ["지구는 하루에 한 번 스스로 한 바퀴를 돈다.", "그래서 낮과 밤이 날마다 번갈아 온다."]),
        ("Water boils at 99.5 degrees on hills! It boils later in valleys.",
         ["Water boils at 99.5 degrees on hills!", "It boils later in valleys."]),
        ("As J. Smith writes, e.g. in his book, it is so. 그는 “물이 끓는다.” 하고 말했다고 한다.",
         ["As J. Smith writes, e.g. in his book, it is so.", "그는 “물이 끓는다.” 하고 말했다고 한다."]),
        ("A heading without a mark\nA sentence in the next line",
         ["A heading without a mark", "A sentence in the next line"]),
        ("1. Numbers join what follows them. 2. So do those of lists.",
         ["1. Numbers join what follows them.", "2. So do those of lists."]),
        ("月は地球のまわりを一か月に一度まわっています。だから月の形は毎晩すこしずつ変わって見えます。",
         ["月は地球のまわりを一か月に一度まわっています。", "だから月の形は毎晩すこしずつ変わって見えます。"]),
        ("It says so in the last line of the book. Yes.", ["It says so in the last line of the book. Yes."]),
        ("x" * 2300, ["x" * 1000, "x" * 1000, "x" * 300]),
    ],
)  # fmt: skip
def test_sentences(text, found):
    assert cut(text) == found


def test_short_sentences_join_the_next_one(monkeypatch):
    monkeypatch.undo()
    short, long = "물은 끓는다.", "물은 평지에서는 백 도에서 끓지만 높은 산에서는 그보다 낮은 온도에서도 벌써 끓는다."
    assert cut(f"{short} {long} {long} {short}") == [f"{short} {long}", f"{long} {short}"]
    assert cut(f"{short} {short}") == [f"{short} {short}"]


def test_a_long_sentence_is_cut_at_white_space():
    pieces = cut("words " * 400)
    assert [len(piece) for piece in pieces] == [995, 995, 407]
    assert all(set(piece.split()) == {"words"} for piece in pieces)


@pytest.mark.parametrize("mark", [".", "。", "\n", '."', "a.", " ", "?! "])
def test_long_runs_of_marks_take_no_longer_than_their_length(mark):
    text = mark * 200_000 + "x"
    assert "".join(cut(text)).replace(" ", "").replace("\n", "") == text.replace(" ", "").replace("\n", "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("ab가 .\n!?。”…\u3000"), max_size=300))
def test_nothing_is_lost_and_nothing_is_said_twice(text):
    spans = sentences(text)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(end - start <= passages.LONGEST + passages.SHORTEST for start, end in spans)


EIGHT = [f"This is sentence number {i}." for i in range(8)]


@pytest.mark.parametrize(
    ("kind", "window", "overlap", "runs"),
    [
        ("none", 3, 1, [(0, 8)]),
        ("sentences", 3, 1, [(i, i + 1) for i in range(8)]),
        ("window", 1, 0, [(i, i + 1) for i in range(8)]),
        ("window", 3, 1, [(0, 3), (2, 5), (4, 7), (6, 8)]),
        ("window", 3, 0, [(0, 3), (3, 6), (6, 8)]),
        ("window", 4, 2, [(0, 4), (2, 6), (4, 8)]),
        ("window", 8, 1, [(0, 8)]),
        ("window", 20, 3, [(0, 8)]),
    ],
)
def test_windows(kind, window, overlap, runs):
    wanted = [" ".join(EIGHT[first:last]) for first, last in runs]
    assert Passages(kind, window, overlap).cut(" ".join(EIGHT)) == wanted


def test_each_passage_follows_the_title():
    texts, starts = Passages("sentences").of([
        Document("a", " ".join(EIGHT[:2]), title="Numbers"), Document("b", EIGHT[2]), Document("c", "", title="Empty"),
    ])  # fmt: skip
    assert texts == [f"Numbers {EIGHT[0]}", f"Numbers {EIGHT[1]}", EIGHT[2], "Empty "]
    assert starts.tolist() == [0, 2, 3, 4]
    whole = [Document("a", " x. ", title="t"), Document("b", "")]
    assert Passages().of(whole).texts == [document.indexed_text for document in whole]
    assert Passages("window").of([]).starts.tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sentence",), "passages is 'sentence': choose one of none, sentences, window. Did you mean 'sentences'"),
        (("window", 0), "window is 0"),
        (("window", 3, -1), "overlap is -1"),
        (("window", 3, 3), r"overlap \(3\) must be less than window \(3\)"),
        (("window", True), "window is True"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(BadInput, match=message):
        Passages(*arguments)


def by_force(queries, vectors, starts, k):
    """All passages scored, the greatest score of each document, sorted."""
    if len(starts) == 1:
        return [[] for _ in queries]
    scores = np.maximum.reduceat(queries.astype(float) @ vectors.T.astype(float), starts[:-1], axis=1)
    return [sorted(zip(-row, range(len(row)), strict=True))[:k] if query.any() else []
            for row, query in zip(scores, queries, strict=True)]  # fmt: skip


def search(queries, vectors, count):
    """What an exact index does: the best passages, of equal ones the first; queries of zeros find nothing."""
    scores = queries.astype(float) @ vectors.T
    found = np.argsort(-scores, axis=1, kind="stable")[:, :count].astype(np.int32)
    values, nothing = np.take_along_axis(scores, found, axis=1), ~queries.any(axis=1)
    found[nothing], values[nothing] = -1, 0
    return found, values


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 30), max_size=12),
    count=st.integers(0, 5),
    k=st.integers(0, 15),
    room=st.sampled_from([1, 50, passages.ROOM]),
)
def test_documents_are_ranked_by_their_best_passage(seed, lengths, count, k, room):
    """Small whole numbers as vectors, so that many passages tie and some queries are zero."""
    chance, starts = np.random.default_rng(seed), np.cumsum([0, *lengths])
    vectors = chance.integers(-1, 2, (starts[-1], 3)).astype(np.float32)
    queries = chance.integers(-1, 2, (count, 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passages, "ROOM", room)
        docs, scores = best_documents(lambda some, n: search(some, vectors, n), queries, starts, k)
    assert docs.shape == scores.shape == (count, min(k, len(lengths)))
    found = [[(-s, d) for d, s in zip(*row, strict=True) if d >= 0] for row in zip(docs, scores, strict=True)]
    assert found == by_force(queries, vectors, starts, k)
