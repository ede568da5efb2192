"""BM25 against plain formulas, against the library rank_bm25, and against the contract of all retrievers."""

import json
import math
import subprocess
import sys
from collections import Counter
from textwrap import dedent

import numpy as np
import pytest
import rank_bm25
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from korean_texts import KOREAN, KOREAN_QUERIES, documents, queries

from harness.errors import BadInput
from retrievers.base import Document
from retrievers.lexical import bm25_postings
from retrievers.lexical._bm25_numpy import sorted_postings
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.bm25_index import VARIANTS
from retrievers.lexical.bm25_postings import PostingsSort
from retrievers.lexical.tokenize import Tokens, Whitespace, Word
from retrievers.testing import check_retriever, same

LIBRARY = {"okapi": rank_bm25.BM25Okapi, "l": rank_bm25.BM25L, "plus": rank_bm25.BM25Plus}
SMALL = "retrievers.lexical.bm25_index.is_small"  # decides between NumPy and the compiled kernels
EVERY = [("lucene", "sparse"), *((variant, engine) for variant in LIBRARY for engine in ("sparse", "rank_bm25"))]


def ranked(texts, asked, folder, k=10, tokenizer=None, **options):
    """Index `texts` and search: one list of (index of the document, score) per query."""
    folder.mkdir(exist_ok=True)
    retriever = BM25(tokenizer or Whitespace(), **options)
    retriever.index(documents(texts), folder)
    ranking = retriever.search(queries(asked), k)
    return [[(int(doc_id), score) for doc_id, score in ranking.row(i)] for i in range(len(asked))]


def assert_equal_up_to_rounding(found, expected, k):
    """The same scores at each rank; where documents differ, their scores are equal up to rounding."""
    expected = sorted(expected, key=lambda pair: (-pair[1], pair[0]))
    assert len(found) == min(k, len(expected))
    assert [score for _, score in found] == pytest.approx([score for _, score in expected[:k]], rel=1e-9, abs=1e-12)
    true = dict(expected)
    for doc, score in found:
        assert score == pytest.approx(true[doc], rel=1e-9, abs=1e-12)


def assert_equals_library(variant, texts, asked, folder, k=50, parameters=None, engine="sparse"):
    parameters = {"k1": 1.5, "b": 0.75} | (parameters or {})
    lists, terms = Word()(texts).lists(), Word()(asked).lists()
    library = LIBRARY[variant](lists, **parameters) if any(lists) else None  # it divides by the number of terms
    rows = ranked(texts, asked, folder, k, Word(), variant=variant, engine=engine, **parameters)
    for row, query in zip(rows, terms, strict=True):
        sharing = [i for i, found in enumerate(lists) if not set(query).isdisjoint(found)]
        scores = library.get_scores(query) if library else []
        assert_equal_up_to_rounding(row, [(i, float(scores[i])) for i in sharing], k)


@pytest.mark.parametrize(("variant", "engine"), EVERY)
def test_contract(variant, engine, tmp_path):
    check_retriever(lambda: BM25(Word(), variant=variant, engine=engine), tmp_path)


def test_lucene_by_hand(tmp_path):
    # 4 documents of 2, 1, 0 and 5 terms: the mean length is 2. '달' occurs in two of them: idf = ln(1 + 2.5/2.5).
    # Document 0: tf 1, norm .25 + .75 * 2/2 = 1, so 1 / (1 + 1.5). Document 3: tf 3, norm .25 + .75 * 5/2 = 2.125.
    [found] = ranked(["달 물", "물", "", "달 달 달 해 해"], ["달"], tmp_path)
    assert [doc for doc, _ in found] == [3, 0]
    expected = [math.log(2) * 3 / (3 + 1.5 * 2.125), math.log(2) / 2.5]
    assert [score for _, score in found] == pytest.approx(expected, rel=1e-12)


def test_lucene_is_the_plain_formula(tmp_path):
    lists = [text.split() for text in KOREAN]
    holding = Counter(term for terms in lists for term in set(terms))
    mean = sum(map(len, lists)) / len(lists)

    def score(terms, doc):
        total = 0.0
        for term in terms:
            tf, n = doc.count(term), holding[term]
            idf = math.log(1 + (len(lists) - n + 0.5) / (n + 0.5))
            total += idf * tf / (tf + 0.9 * (1 - 0.4 + 0.4 * len(doc) / mean))
        return total

    for row, query in zip(ranked(KOREAN, KOREAN_QUERIES, tmp_path, k1=0.9, b=0.4), KOREAN_QUERIES, strict=True):
        expected = [(i, score(query.split(), doc)) for i, doc in enumerate(lists)]
        assert_equal_up_to_rounding(row, [pair for pair in expected if pair[1] > 0], 10)


words = st.lists(st.sampled_from(["물", "불", "흙", "바람", "a", "b", "c"]), max_size=6).map(" ".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(words, max_size=12),
    asked=st.lists(words, min_size=1, max_size=4),
    k=st.integers(0, 14),
    variant=st.sampled_from(list(LIBRARY)),
    parameters=st.fixed_dictionaries({"k1": st.sampled_from([0.01, 1.5]), "b": st.sampled_from([0.0, 0.75, 1.0])}),
    engine=st.sampled_from(["sparse", "rank_bm25"]),
)
@pytest.mark.filterwarnings("ignore:invalid value")  # the library divides 0 by 0 for empty documents at b = 1
def test_scores_are_the_librarys(texts, asked, k, variant, parameters, engine, tmp_path):
    assert_equals_library(variant, texts, asked, tmp_path, k, parameters, engine)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(words, max_size=12),
    asked=st.lists(words, min_size=1, max_size=4),
    k=st.integers(0, 14),
    variant=st.sampled_from(list(VARIANTS)),
    parameters=st.fixed_dictionaries({"k1": st.sampled_from([0.0, 1.5]), "b": st.sampled_from([0.0, 0.75, 1.0])}),
)
def test_numpy_and_kernels_agree_to_the_bit(texts, asked, k, variant, parameters, tmp_path):
    # '물' in most documents makes okapi's idf negative; repeated words and equal texts make ties.
    texts, asked = [*texts, "물", "물 불", *texts[:3]], [*asked, "", "물 물 불 없다"]

    def made(name, small):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SMALL, lambda count: small)
            rows = ranked(texts, asked, tmp_path / name, k, variant=variant, **parameters)
        files = {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        return files, [[(doc, score.hex()) for doc, score in row] for row in rows]

    assert made("numpy", True) == made("kernels", False)


@pytest.mark.parametrize("sizes", [[70_000, 3], [0, 0, 5, 0, 40, 1, 0, 0], [0] * 3, [], [7] * 300])
@pytest.mark.parametrize("at_once", [1, bm25_postings.AT_ONCE])
def test_parts_of_documents_and_terms_are_sorted_as_the_whole(sizes, at_once, monkeypatch):
    monkeypatch.setattr(bm25_postings, "AT_ONCE", at_once)
    # 70,000 equal terms need more than 16 bits. No document has the first term and the last one.
    ids = np.random.default_rng(2).integers(1, 9, sum(sizes)).astype(np.int32)
    ids[:69_000] = 2
    offsets = np.cumsum([0, *sizes])
    starts, expected = sorted_postings(ids, offsets, 10)
    for threads in (1, 2, 5):
        found = PostingsSort(ids, offsets, 10, threads)
        assert found.starts.tolist() == starts.tolist()
        docs, frequencies = list[int](), list[int]()
        for block in found.blocks():
            assert block.first == len(docs)
            docs += block.docs.tolist()
            frequencies += block.frequencies.tolist()
        assert docs == expected.docs.tolist()
        assert frequencies == expected.frequencies.tolist()


@pytest.mark.parametrize("threads", [1, 4])
def test_scores_do_not_depend_on_threads_and_chunks(threads, tmp_path, monkeypatch):
    monkeypatch.setattr(SMALL, lambda count: False)
    texts = [" ".join(f"w{i}" for i in range(1, 9) if n % i == 0) for n in range(200)]
    for chunk in (1 << 17, 7):
        monkeypatch.setattr(bm25_postings, "CHUNK", chunk)
        monkeypatch.setattr(bm25_postings, "AT_ONCE", chunk)
        (folder := tmp_path / str(chunk)).mkdir()
        BM25(Whitespace(), threads=threads).index(documents(texts), folder)
    one, other = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("131072", "7"))
    assert one == other
    starts, scores, peaks = (np.load(folder / f"{name}.npy") for name in ("starts", "scores", "peaks"))
    assert peaks.tolist() == bm25_postings.peaks_of(starts, scores).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("variant", LIBRARY)
def test_scores_are_the_librarys_on_korquad(variant, tmp_path, real_data):
    articles = json.loads((real_data / "korquad" / "KorQuAD_v1.0_dev.json").read_text("utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]][:300]
    asked = [question["question"] for paragraph in paragraphs for question in paragraph["qas"]][::20]
    assert_equals_library(variant, [paragraph["context"] for paragraph in paragraphs], asked, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("variant", LIBRARY)
def test_scores_are_the_librarys_with_negative_idf_and_many_blocks(variant, small, tmp_path, monkeypatch):
    monkeypatch.setattr(SMALL, lambda count: small)
    # 9,000 documents are three blocks of the kernel; w0 occurs in far more than half of them, so its idf is negative.
    # Short documents over few words make many equal scores.
    drawn = np.random.default_rng(7).zipf(1.3, (9000, 4)) - 1
    texts = [" ".join(["w0", *(f"w{word}" for word in row if word < 300)]) for row in drawn]
    texts[::7] = ["w1"] * len(texts[::7])
    asked = ["w0", "w0 w5", "w1", "w250 w3 w3", "w0 w1 w2 w3 w4", *(f"w{i} w{i + 1}" for i in range(40, 60))]
    assert_equals_library(variant, texts, asked, tmp_path)


def test_scores_of_zero_and_below_are_returned(tmp_path):
    # Two of four documents contain '물': okapi's idf is ln(2.5 / 2.5) = 0. All contain '불': the mean idf is negative.
    zero, negative, none = ranked(["물 불", "불", "물 불", "불"], ["물", "불", "없다"], tmp_path, variant="okapi")
    assert zero == [(0, 0.0), (2, 0.0)]
    assert [doc for doc, _ in negative] == [0, 2, 1, 3]  # the scores of longer documents are closer to 0
    assert all(score < 0 for _, score in negative)
    assert none == []


@pytest.mark.parametrize("variant", ["lucene", "okapi", "plus"])
def test_without_k1_repeats_and_lengths_do_not_matter(variant, tmp_path):
    # Every weight is then 1 (plus: 2, with its delta), so the documents that contain '물은' tie.
    (found,) = ranked(KOREAN, ["물은"], tmp_path, variant=variant, k1=0)
    assert [doc for doc, _ in found] == [2, 6]
    assert found[0][1] == found[1][1] > 0


@pytest.mark.parametrize(("threads", "small"), [(1, False), (4, False), (1, True)])
def test_ties_across_blocks_are_ordered_by_doc_id_with_any_number_of_threads(tmp_path, monkeypatch, threads, small):
    monkeypatch.setattr(SMALL, lambda count: small)
    for first, found in enumerate(ranked(["물", "불"] * 10_000, ["물", "불"], tmp_path, k=300, threads=threads)):
        assert [doc for doc, _ in found] == list(range(first, 600, 2))


def test_a_small_index_loads_no_compiler(tmp_path):
    code = """
        import sys, pathlib
        from retrievers.base import Document, Query
        from retrievers.lexical.bm25 import BM25
        from retrievers.lexical.tokenize import Whitespace
        bm25 = BM25(Whitespace())
        bm25.index([Document("1", "물 불"), Document("2", "불")], pathlib.Path(sys.argv[1]))
        print(bm25.search([Query.of("q", "물")], 2).to_dict()["q"].keys(), "numba" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", dedent(code), tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "dict_keys(['1']) False\n"


def test_titles_are_searched_and_ids_of_any_script_come_back(tmp_path):
    made = [Document(doc_id, "끓는다", title="물") for doc_id in sorted(["가", "a\nb", "a", "\U0001f315", "é"])]
    retriever, calls = BM25(Whitespace()), []
    retriever.progress = lambda *call: calls.append(call)
    retriever.index(made, tmp_path)
    assert retriever.search(queries(["물"]), 9).doc_ids == tuple(document.doc_id for document in made)
    assert calls == [(5, 5, "texts"), (1, 1, "texts")]


def test_vocabulary_words_that_occur_in_no_document_change_nothing(tmp_path):
    # A cached vocabulary may have more words than this corpus uses.
    def wider(texts, progress=None):
        tokens = Whitespace()(texts)
        return Tokens((*tokens.vocabulary, "남는말"), tokens.ids, tokens.offsets)

    asked = [*KOREAN_QUERIES, "남는말"]
    for variant in ("okapi", "plus"):
        plain = ranked(KOREAN, asked, tmp_path / f"{variant}-plain", variant=variant)
        assert ranked(KOREAN, asked, tmp_path / f"{variant}-wide", tokenizer=wider, variant=variant) == plain


def test_misuse_is_rejected(tmp_path):
    retriever = BM25(Whitespace())
    with pytest.raises(RuntimeError, match="`index` or `load` before `search`"):
        retriever.search([], 1)
    with pytest.raises(ValueError, match="ascending"):
        retriever.index([Document("b", ""), Document("a", "")], tmp_path)
    retriever.index([], tmp_path)
    with pytest.raises(BadInput, match="k is -1"):
        retriever.search([], -1)
    with pytest.raises(ValueError, match=r"was made with .*'k1': 1\.5"):
        BM25(Whitespace(), k1=2).load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "okapy"}, "variant is 'okapy'.*Did you mean 'okapi'"),
        ({"engine": "numba"}, "engine is 'numba'.*sparse"),
        ({"engine": "rank_bm25"}, "engine=rank_bm25 has no variant=lucene"),
        ({"engine": "rank_bm25", "variant": "l", "k1": 0}, "engine=rank_bm25 .* k1=0"),
        ({"k1": -0.1}, "k1 is -0.1"),
        ({"k1": math.nan}, "k1 is nan"),
        ({"b": 1.1}, "b is 1.1: give a number from 0 to 1"),
        ({"b": True}, "b is True"),
        ({"variant": "plus", "delta": -1}, "delta is -1"),
        ({"delta": 1}, "variant=lucene has no delta"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(BadInput, match=message):
        BM25(Whitespace(), **options)


@pytest.mark.parametrize("variant", ["lucene", "okapi", "plus"])
def test_a_smaller_k_gives_a_prefix_over_several_blocks(variant, tmp_path):
    # More documents than two blocks of the kernel, many of them tied; k below, at and above its number of groups.
    # Without a threshold to start from (k = all) every touched document is a candidate: the reference.
    generator = np.random.default_rng(5)
    texts = [" ".join(f"w{i}" for i in generator.zipf(1.4, size) if i < 60) for size in generator.integers(0, 9, 9000)]
    asked = queries(["w1", "w1 w2 w3", "w7 w40", "w59", "w2 w2 w50"])
    bm25 = BM25(Whitespace(), variant=variant)
    bm25.index(documents(texts), tmp_path)
    whole = bm25.search(asked, len(texts))
    for k in (1, 99, 511, 512, 513, 2000):
        assert same(bm25.search(asked, k), whole.top(k))
