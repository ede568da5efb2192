"""Dense retrieval over a small encoder, against the contract of all retrievers; documents cut into passages."""

from itertools import pairwise

import numpy as np
import pytest
from fakes import TrigramEncoder
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import BadInput
from retrievers.base import Document, Query
from retrievers.dense import dense as module
from retrievers.dense.dense import Dense, Passages, best_documents, sentences
from retrievers.dense.embeddings import BadVector
from retrievers.dense.vectors import HNSW, IVFPQ, Flat, IVFFlat
from retrievers.testing import DOCUMENTS, QUERIES, check_retriever, same

FILE = "embeddings.npy"


class Numbers:
    """A text spells its vector: numbers separated by spaces. texts: the encoded documents."""

    version, packages, learns = 1, (), False

    def encode_documents(self, texts, folder, progress=None):
        self.texts = list(texts)
        np.save(folder / FILE, self.encode_queries(texts, folder))
        if progress:
            progress(len(texts), len(texts), "documents")

    def encode_queries(self, texts, folder, progress=None):
        vectors = np.array([[float(word) for word in text.split()] for text in texts], np.float32).reshape(-1, 2)
        for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
            raise BadVector(row, "is not finite")
        return vectors


def documents(**texts):
    return [Document(doc_id, text) for doc_id, text in texts.items()]


@pytest.fixture
def short(monkeypatch):
    """Sentences of any length count as such."""
    monkeypatch.setattr(module, "SHORTEST", 1)


CONTRACT = [
    (Flat, {}),
    (HNSW, {}),
    (lambda: IVFFlat(nlist=1, nprobe=1), {}),
    (Flat, {"passages": "sentences"}),
    (Flat, {"passages": "window", "window": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("index", "how"), CONTRACT)
def test_it_keeps_the_contract(tmp_path, short, index, how):
    check_retriever(lambda: Dense(TrigramEncoder(), index(), **how), tmp_path)


def test_scores_are_inner_products_and_the_ranking_has_the_measured_recall(tmp_path):
    dense = Dense(Numbers(), IVFFlat())
    dense.index(documents(a="1 0", b="0 2", c="0 2"), tmp_path)
    ranking = dense.search([Query.of("q", "3 1"), Query.of("none", "0 0")], 2)
    # 3 * 1 + 1 * 0 = 3; 3 * 0 + 1 * 2 = 2 for b and c, of which b comes first.
    assert ranking.to_dict() == {"q": {"a": 3.0, "b": 2.0}, "none": {}}
    assert ranking.measured == {"index_recall": 1.0}


def test_the_error_of_a_bad_vector_names_its_text(tmp_path, short):
    dense = Dense(Numbers(), Flat(), passages="sentences")
    with pytest.raises(BadInput, match="the vector of document 'b' is not finite"):
        dense.index(documents(a="1 0. 0 2.", b="1 1. inf 0", c="0 1"), tmp_path)
    dense = Dense(Numbers(), Flat())
    dense.index(documents(a="1 0"), tmp_path)
    with pytest.raises(BadInput, match="the vector of query 'q2' is not finite"):
        dense.search([Query.of("q1", "1 0"), Query.of("q2", "0 nan")], 1)


def test_a_document_has_the_score_of_its_best_passage(tmp_path, short):
    encoder, calls = Numbers(), []
    dense = Dense(encoder, Flat(), passages="sentences")
    dense.progress = lambda *call: calls.append(call)
    dense.index(documents(a="1 0. 0 2. 1 1.", b="0 2", c="1 1", d="3 0"), tmp_path)
    assert encoder.texts == ["1 0.", "0 2.", "1 1.", "0 2", "1 1", "3 0"]
    assert calls == [(6, 6, "passages")]
    queries = [Query.of("q", "3 1"), Query.of("r", "0 1"), Query.of("none", "0 0")]
    ranking = dense.search(queries, 3)
    # q: the passages of a score 3, 2 and 4; b, c and d score 2, 4 and 9. a comes before c, which has the same score.
    # r: 0, 2 and 1; then 2, 1 and 0.
    assert ranking.to_dict() == {"q": {"d": 9.0, "a": 4.0, "c": 4.0}, "r": {"a": 2.0, "b": 2.0, "c": 1.0}, "none": {}}
    reader = Dense(Numbers(), Flat(), passages="sentences")
    reader.load(tmp_path)
    assert same(reader.search(queries, 3), ranking)


def test_only_passages_change_the_identity():
    parts = {"encoder": "e", "index": "i"}
    assert Dense.identify(**parts) == Dense.identify(**parts, passages="none", window=9, overlap=2) == parts
    by_sentences = Dense.identify(**parts, passages="sentences")
    assert by_sentences == parts | {"passages": {"kind": "sentences", "version": 1}}
    assert by_sentences == Dense.identify(**parts, passages="sentences", window=9)  # only `window` cuts windows
    windows = [Dense.identify(**parts, passages="window", window=4, overlap=n)["passages"] for n in (1, 2)]
    assert windows[0] == {"kind": "window", "version": 1, "window": 4, "overlap": 1} != windows[1]


@pytest.mark.parametrize("stored", [np.zeros((9, 64), np.float32), np.zeros((10, 64)), np.zeros(10, np.float32)])
def test_embeddings_of_another_shape_are_rejected(tmp_path, monkeypatch, stored):
    monkeypatch.setattr(Numbers, "encode_documents", lambda _, texts, folder, __: np.save(folder / FILE, stored))
    with pytest.raises(ValueError, match=r"one row for each of the 10 documents"):
        Dense(Numbers(), Flat()).index(DOCUMENTS, tmp_path)


def test_an_interrupted_index_is_completed_and_its_vectors_are_then_only_read(tmp_path):
    """A call was interrupted while it built the index. The finished vectors may be links to cached files."""
    (tmp_path / "encoded").mkdir()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "flat.json").write_text("{")
    Dense(TrigramEncoder(), HNSW()).index(DOCUMENTS, tmp_path)
    files = list((tmp_path / "encoded").iterdir())
    before = [(file.name, file.read_bytes()) for file in files]
    for file in [*files, tmp_path / "encoded"]:
        file.chmod(0o555)
    reader = Dense(TrigramEncoder(), HNSW())
    reader.load(tmp_path)
    assert reader.search(QUERIES, 1).row(1)[0][0] == "b1"
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "encoded").iterdir()] == before
    (tmp_path / "encoded").chmod(0o755)


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
def test_sentences(monkeypatch, text, found):
    monkeypatch.setattr(module, "SHORTEST", 20)  # a table of short lines
    assert cut(text) == found


def test_short_sentences_join_the_next_one_and_long_ones_are_cut_at_white_space():
    short, long = "물은 끓는다.", "물은 평지에서는 백 도에서 끓지만 높은 산에서는 그보다 낮은 온도에서도 벌써 끓는다."
    assert cut(f"{short} {long} {long} {short}") == [f"{short} {long}", f"{long} {short}"]
    assert cut(f"{short} {short}") == [f"{short} {short}"]
    pieces = cut("words " * 400)
    assert [len(piece) for piece in pieces] == [995, 995, 407]
    assert all(set(piece.split()) == {"words"} for piece in pieces)


@pytest.mark.parametrize("mark", [".", "。", "\n", '."', "a.", " ", "?! "])
def test_long_runs_of_marks_take_no_longer_than_their_length(mark):
    text = mark * 200_000 + "x"
    assert "".join(cut(text)).replace(" ", "").replace("\n", "") == text.replace(" ", "").replace("\n", "")


@given(st.text(st.sampled_from("ab가 .\n!?。”…\u3000"), max_size=300))
def test_nothing_is_lost_and_nothing_is_said_twice(text):
    spans = sentences(text)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(end - start <= module.LONGEST + module.SHORTEST for start, end in spans)


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
def test_windows(short, kind, window, overlap, runs):
    wanted = [" ".join(EIGHT[first:last]) for first, last in runs]
    assert Passages(kind, window, overlap).cut(" ".join(EIGHT)) == wanted


def test_each_passage_follows_the_title(short):
    two, one = Document("a", " ".join(EIGHT[:2]), title="Numbers"), Document("b", EIGHT[2])
    texts, starts = Passages("sentences").of([two, one, Document("c", "", title="Empty")])
    assert texts == [f"Numbers {EIGHT[0]}", f"Numbers {EIGHT[1]}", EIGHT[2], "Empty "]
    assert starts.tolist() == [0, 2, 3, 4]
    whole = [Document("a", " x. ", title="t"), Document("b", "")]
    assert Passages().of(whole)[0] == [document.indexed_text for document in whole]
    assert Passages("window").of([])[1].tolist() == [0]


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
    for index in (HNSW, IVFFlat, IVFPQ):
        with pytest.raises(BadInput, match=r"passages=sentences needs index=flat"):
            Dense(TrigramEncoder(), index(), passages="sentences")


def by_force(queries, vectors, starts, k):
    """All passages scored, the greatest score of each document, sorted."""
    if len(starts) == 1:
        return [[] for _ in queries]
    scores = np.maximum.reduceat(queries.astype(float) @ vectors.T.astype(float), starts[:-1], axis=1)
    return [sorted(zip(-row, range(len(row)), strict=True))[:k] if query.any() else []
            for row, query in zip(scores, queries, strict=True)]  # fmt: skip


def search(queries, vectors, count):
    """Search as an exact index does: equal passages stay in order, and a query of zeros finds no passage."""
    scores = queries.astype(float) @ vectors.T
    found = np.argsort(-scores, axis=1, kind="stable")[:, :count].astype(np.int32)
    values, nothing = np.take_along_axis(scores, found, axis=1), ~queries.any(axis=1)
    found[nothing], values[nothing] = -1, 0
    return found, values


@pytest.mark.slow
@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 30), max_size=12),
    count=st.integers(0, 5),
    k=st.integers(0, 15),
    room=st.sampled_from([1, 50, module.ROOM]),
)
def test_documents_are_ranked_by_their_best_passage(seed, lengths, count, k, room):
    """Small whole numbers as vectors, so that many passages tie and some queries are zero."""
    chance, starts = np.random.default_rng(seed), np.cumsum([0, *lengths])
    vectors = chance.integers(-1, 2, (starts[-1], 3)).astype(np.float32)
    queries = chance.integers(-1, 2, (count, 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROOM", room)
        docs, scores = best_documents(lambda some, n: search(some, vectors, n), queries, starts, k)
    assert docs.shape == scores.shape == (count, min(k, len(lengths)))
    found = [[(-s, d) for d, s in zip(*row, strict=True) if d >= 0] for row in zip(docs, scores, strict=True)]
    assert found == by_force(queries, vectors, starts, k)
