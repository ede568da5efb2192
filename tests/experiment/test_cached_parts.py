"""Dense, hybrid and reranked runs through the command line: right, and nothing computed twice."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_models

import retrievers.combine.rerank
import retrievers.dense.embeddings
import retrievers.dense.encoders
from harness.data.contest import Contest

ROOT = Path(__file__).resolve().parents[2]
TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "tracking=none", "format=json")
LOCAL = ("encoder=local", "encoder.path=model", "retriever=dense")


@pytest.fixture
def own(monkeypatch, tmp_path, untimed):
    """A cache of its own and a tiny model in the folder `model`."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tiny_models.tiny_sentence_model(tmp_path / "model")


@pytest.fixture
def encoded(monkeypatch):
    """The texts that were encoded."""
    texts = []

    def noting(method):
        def call(given, *arguments):
            *rest, encode, progress = arguments

            def encode_and_note(rows):
                texts.extend(given[row] for row in rows)
                yield from encode(rows)

            return method(given, *rest, encode_and_note, progress)

        return call

    for name in ("write_embeddings", "collect_embeddings"):
        monkeypatch.setattr(retrievers.dense.encoders, name, noting(getattr(retrievers.dense.embeddings, name)))
    return texts


def submitted(done):
    path = done.json["files"]["predictions"]
    return [json.loads(line)["topk"] for line in Path(path).read_text("utf-8").splitlines()]


def by_numpy(folder, documents, queries, k):
    """The k nearest documents of each query by plain `encode` and numpy: [(doc_id, score), ...]."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ids = sorted(documents)
    vectors = model.encode([documents[doc_id] for doc_id in ids], normalize_embeddings=True).astype(np.float64)
    asked = model.encode(queries, normalize_embeddings=True).astype(np.float64)
    scores = asked @ vectors.T
    return [[(ids[i], row[i]) for i in np.argsort(-row, kind="stable")[:k]] for row in scores]


def check_against(expected, found):
    """Document for document; where two scores differ by less than float32's error either order is right."""
    assert len(expected) == len(found)
    for wanted, given in zip(expected, found, strict=True):
        assert np.allclose([score for _, score in wanted], [score for _, score in given], atol=1e-5)
        for place, (doc_id, score) in enumerate(wanted):
            if given[place][0] != doc_id:
                near = [other for other, value in wanted if abs(value - score) < 1e-5]
                assert given[place][0] in near or place == len(wanted) - 1


def trec(folder):
    rows = [line.split() for line in (Path(folder) / "run.trec").read_text("utf-8").splitlines()]
    return [[(row[2], float(row[4])) for row in group] for _, group in itertools.groupby(rows, lambda row: row[0])]


def test_dense_equals_encode_and_numpy(harness, own, tmp_path):
    """On a third of the sample."""
    (part := tmp_path / "part").mkdir()
    for name in ("documents.jsonl", "eval.jsonl"):
        lines = (ROOT / "harness" / "sample" / name).read_text("utf-8").splitlines()
        (part / name).write_text("\n".join(lines[::3]), "utf-8")
    words = ("retriever=dense", "encoder=local", f"encoder.path={own}", "tracking=none", "format=json", "depth=20")
    done = harness("run", *words, "dataset=contest", f"dataset.path={part}", "query.text=last")
    given = Contest(path=str(part))
    documents = {document.doc_id: document.indexed_text for document in given.documents()}
    queries = [query.user_turns[-1] for query in given.queries()]
    assert (len(documents), len(queries)) == (44, 20)
    check_against(by_numpy(own, documents, queries, 20), trec(done.json["files"]["folder"]))


OTHERS = [
    ("index=hnsw",),
    ("index=ivf_flat", "index.nlist=1", "index.nprobe=1"),
    ("retriever=hybrid", "fusion=rrf", "fusion.k=3"),
    ("gate=score", "gate.threshold=0.9"),
    ("encoder.dtype=float32", "encoder.runtime.batch_tokens=17"),
    ("top_k=1", "depth=200"),
]


def test_no_text_is_encoded_twice(harness, toy, own, encoded, tmp_path):
    harness("run", *TOY, *LOCAL)
    assert len(encoded) == 6
    encoded.clear()
    for other in OTHERS:
        assert harness("run", *TOY, *LOCAL, *other).code == 0, other
        assert encoded == [], other
    own.rename(tmp_path / "moved")
    assert harness("run", *TOY, *LOCAL, "encoder.path=moved", "gate=score").code == 0
    assert encoded == [], "the same model, elsewhere"


@pytest.mark.slow
def test_other_embeddings_are_other_embeddings(harness, toy, own, encoded):
    """A query prefix encodes the queries again, a document's everything that is shorter; other weights all."""
    harness("run", *TOY, *LOCAL)
    for words in (["encoder.max_length=8"], ["encoder.normalise=false"], ["encoder.query_prefix='query: '"]):
        encoded.clear()
        harness("run", *TOY, *LOCAL, *words)
        assert len(encoded) == 6, words
    shutil.rmtree(own)
    tiny_models.tiny_sentence_model(own, seed=1)
    encoded.clear()
    harness("run", *TOY, *LOCAL)
    assert len(encoded) == 6, "the same path, another model"


def test_an_interrupted_encode_goes_on(harness, toy, own, encoded, monkeypatch):
    real = retrievers.dense.encoders.SentenceEncoder._by_batches

    def stopped(*arguments):
        yield next(real(*arguments))
        raise KeyboardInterrupt

    words = ("run", *TOY, *LOCAL, "encoder.runtime.batch_tokens=1")  # a batch is one text
    with monkeypatch.context() as patch:
        patch.setattr(retrievers.dense.encoders.SentenceEncoder, "_by_batches", stopped)
        assert harness(*words).code == 130
    encoded.clear()
    again = harness(*words)
    assert len(encoded) == 2 + 3, "two documents and three queries"
    monkeypatch.setenv("HARNESS_CACHE", "other")
    assert submitted(harness(*words)) == submitted(again)


@pytest.mark.parametrize("harm", ["flip", "truncate"])
def test_damaged_embeddings_are_made_again(harness, toy, own, encoded, harm, tmp_path):
    before = submitted(harness("run", *TOY, *LOCAL))
    found = [*(tmp_path / "cache").rglob("embeddings.npy"), *(tmp_path / "cache").rglob("scores.npy")]
    for path in {path.stat().st_ino: path for path in found}.values():  # an index has links to the embeddings
        data = bytearray(path.read_bytes())
        data[-3] ^= 64
        path.write_bytes(data if harm == "flip" else data[:-1])
    everything = sorted(encoded)
    encoded.clear()
    done = harness("run", *TOY, *LOCAL)
    assert submitted(done) == before
    assert sorted(encoded) == everything


@pytest.fixture
def scored(monkeypatch, tmp_path):
    """The pairs that the cross-encoder in the folder `reranker` scored."""
    tiny_models.tiny_cross_encoder(tmp_path / "reranker")
    pairs = []
    real = retrievers.combine.rerank.CrossEncoder.score

    def score(self, given, progress=None):
        pairs.extend(given)
        return real(self, given, progress)

    monkeypatch.setattr(retrievers.combine.rerank.CrossEncoder, "score", score)
    return pairs


RERANKED = (*TOY, "rerank=cross_encoder", "rerank.path=reranker", "rerank.max_length=64")
CHEAP = [
    "gate=score gate.source=bm25 gate.threshold=1", "fusion.weights.bm25=0.1", "rerank.depth=1", "top_k=1",
    "metrics=[mrr] objective=mrr",
]  # fmt: skip


@pytest.mark.slow
def test_a_pair_is_scored_once(harness, toy, own, scored):
    first = harness("run", *RERANKED, "retriever=hybrid_lexical")
    assert len(scored) == len(known := set(scored)) > 0
    scored.clear()
    for words in CHEAP:
        assert harness("run", *RERANKED, "retriever=hybrid_lexical", *words.split()).code == 0
        assert scored == [], words
    harness("run", *RERANKED, *LOCAL)
    assert scored, "dense retrieval finds all documents"
    assert not known & set(scored)
    assert submitted(harness("run", *RERANKED, "retriever=hybrid_lexical")) == submitted(first)


def test_reranking_orders_by_the_librarys_scores(harness, toy, own, scored):
    from sentence_transformers import CrossEncoder

    done = harness("run", *RERANKED, *LOCAL, "rerank.depth=2")
    plain = harness("run", *TOY, *LOCAL)
    model = CrossEncoder("reranker", max_length=64, local_files_only=True)
    rows = [json.loads(line) for line in (toy / "documents.jsonl").read_text("utf-8").splitlines()]
    texts = {row["docid"]: row["content"] for row in rows}
    asked = [json.loads(line)["msg"][0]["content"] for line in (toy / "eval.jsonl").read_text("utf-8").splitlines()]
    for query, before, after in zip(asked, submitted(plain), submitted(done), strict=True):
        values = dict(zip(before[:2], model.predict([(query, texts[doc_id]) for doc_id in before[:2]]), strict=True))
        assert after == [*sorted(before[:2], key=lambda doc_id: -values[doc_id]), before[2]]


def test_an_error_names_the_document_for_which_a_model_gives_nan(harness, toy, own, monkeypatch):
    real = retrievers.dense.encoders.SentenceEncoder._by_batches

    def spoilt(self, texts, rows, prefix):
        for some, vectors in real(self, texts, rows, prefix):
            vectors[some == 1] = np.nan
            yield some, vectors

    monkeypatch.setattr(retrievers.dense.encoders.SentenceEncoder, "_by_batches", spoilt)
    done = harness("run", *TOY, *LOCAL)
    assert done.code == 2
    assert "d2" in done.err


def test_what_is_learnt_from_passages_is_not_taken_for_what_is_learnt_from_documents(harness, toy, monkeypatch):
    """The vectors of queries differ with what the encoder learned; the same run in an empty cache is the witness."""
    long = " ".join(f"달은 지구를 {i}번 돈다고 적혀 있다." for i in range(6))
    lines = [json.loads(line) for line in (toy / "documents.jsonl").read_text("utf-8").splitlines()]
    rows = [json.dumps(row | {"content": f"{row['content']} {long}"}) for row in lines]
    (toy / "documents.jsonl").write_text("\n".join(rows), "utf-8")

    def found(*more):
        return trec(harness("run", *TOY, "retriever=dense", "encoder=lsa", *more).json["files"]["folder"])

    whole, after = found(), found("retriever.dense.passages=sentences")
    monkeypatch.setenv("HARNESS_CACHE", "other")
    assert after == found("retriever.dense.passages=sentences") != whole
