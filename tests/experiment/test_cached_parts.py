"""Dense, hybrid and reranked runs through the command line: right, and nothing computed twice."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from talks import rows

import retrievers.combine.rerank
import retrievers.dense.embeddings
import retrievers.dense.encoders
from harness.experiment import cached_parts

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "tracking=none", "format=json")
LOCAL = ("encoder=local", "encoder.path=model", "retriever=dense")


@pytest.fixture
def own(tmp_path, untimed, own_cache):
    """A cache of its own and a tiny model in the folder `model`."""
    return tiny_models.tiny_sentence_model(tmp_path / "model")


@pytest.fixture
def encoded(monkeypatch):
    """The texts that were encoded."""
    texts = []

    def noting(method):
        def call(given, *arguments):
            *rest, encode, progress = arguments

            def encode_and_note(rows, left):
                texts.extend(given[row] for row in rows[left])
                yield from encode(rows, left)

            return method(given, *rest, encode_and_note, progress)

        return call

    for name in ("write_embeddings", "collect_embeddings"):
        monkeypatch.setattr(retrievers.dense.encoders, name, noting(getattr(retrievers.dense.embeddings, name)))
    return texts


def submitted(done):
    return [row["topk"] for row in rows(done).values()]


def texts_of(toy):
    """The texts of the documents by id, and those of the queries."""
    lines = [json.loads(line) for line in (toy / "documents.jsonl").read_text("utf-8").splitlines()]
    asked = [json.loads(line)["msg"][0]["content"] for line in (toy / "eval.jsonl").read_text("utf-8").splitlines()]
    return {line["docid"]: line["content"] for line in lines}, asked


def test_a_dense_run_ranks_by_the_librarys_vectors(harness, toy, own):
    from sentence_transformers import SentenceTransformer

    model, (documents, asked) = SentenceTransformer(str(own), device="cpu", local_files_only=True), texts_of(toy)
    scores = model.encode(asked) @ model.encode([*documents.values()]).T
    expected = [[[*documents][column] for column in row] for row in np.argsort(-scores)]
    assert submitted(harness("run", *TOY, *LOCAL)) == expected


OTHERS = [
    ("index=hnsw",),
    ("index=ivf_flat", "index.nlist=1", "index.nprobe=1"),
    ("retriever=hybrid", "fusion=rrf", "fusion.k=3"),
    ("gate=score", "gate.threshold=0.9"),
    ("encoder.dtype=float32", "encoder.runtime.batch_tokens=17"),
    ("top_k=1", "depth=200"),
]


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_interrupted_encode_goes_on(harness, toy, own, encoded, monkeypatch):
    real = retrievers.dense.encoders.SentenceEncoder._vectors

    def stopped(*arguments, **named):
        yield next(real(*arguments, **named))
        raise KeyboardInterrupt

    words = ("run", *TOY, *LOCAL, "encoder.runtime.batch_tokens=1")  # a batch is one text
    with monkeypatch.context() as patch:
        patch.setattr(retrievers.dense.encoders.SentenceEncoder, "_vectors", stopped)
        assert harness(*words).code == 130
    encoded.clear()
    again = harness(*words)
    assert len(encoded) == 2 + 3, "two documents and three queries"
    monkeypatch.setenv("HARNESS_CACHE", "other")
    assert submitted(harness(*words)) == submitted(again)


@pytest.mark.slow
def test_damaged_embeddings_are_made_again(harness, toy, own, encoded, tmp_path):
    before, everything = submitted(harness("run", *TOY, *LOCAL)), sorted(encoded)
    found = [*(tmp_path / "cache").rglob("embeddings.npy"), *(tmp_path / "cache").rglob("scores.npy")]
    for path in {path.stat().st_ino: path for path in found}.values():  # an index has links to the embeddings
        data = bytearray(path.read_bytes())
        data[-3] ^= 64
        path.write_bytes(data)
    encoded.clear()
    assert submitted(harness("run", *TOY, *LOCAL)) == before
    assert sorted(encoded) == everything


@pytest.fixture
def scored(monkeypatch, tmp_path):
    """The pairs that the cross-encoder in the folder `reranker` scored."""
    tiny_models.tiny_cross_encoder(tmp_path / "reranker")
    pairs = []
    real = retrievers.combine.rerank.CrossEncoder.score

    def score(self, given):
        pairs.extend(given)
        return real(self, given)

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
    model, (texts, asked) = CrossEncoder("reranker", max_length=64, local_files_only=True), texts_of(toy)
    for query, before, after in zip(asked, submitted(plain), submitted(done), strict=True):
        values = dict(zip(before[:2], model.predict([(query, texts[doc_id]) for doc_id in before[:2]]), strict=True))
        assert after == [*sorted(before[:2], key=lambda doc_id: -values[doc_id]), before[2]]


@pytest.mark.slow
def test_what_is_learnt_from_passages_is_not_taken_for_what_is_learnt_from_documents(harness, toy, monkeypatch):
    """The vectors of queries differ with what the encoder learned; the same run in an empty cache is the witness."""
    long = " ".join(f"달은 지구를 {i}번 돈다고 적혀 있다." for i in range(6))
    lines = [json.loads(line) for line in (toy / "documents.jsonl").read_text("utf-8").splitlines()]
    longer = [json.dumps(row | {"content": f"{row['content']} {long}"}) for row in lines]
    (toy / "documents.jsonl").write_text("\n".join(longer), "utf-8")

    def found(*more):
        folder = harness("run", *TOY, "retriever=dense", "encoder=lsa", *more).json["files"]["folder"]
        return Path(folder, "run.trec").read_text("utf-8")

    stages = []
    monkeypatch.setattr(cached_parts, "stage", lambda label: nullcontext(stages.append(label)))
    whole, after = found(), found("retriever.dense.passages=sentences")
    assert [one for one in stages if "encoding" in one] == [
        "encoder/lsa: encoding 3 documents",
        "encoder/lsa: encoding 6 passages",
    ]
    monkeypatch.setenv("HARNESS_CACHE", "other")
    assert after == found("retriever.dense.passages=sentences") != whole
