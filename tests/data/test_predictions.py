"""Lists are read as the contest and trec_eval read them, and submissions are made and validated."""

import gzip
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.files import json_lines, json_text
from harness.data.predictions import read_predictions
from harness.data.submissions import bare_text, submission_rows, validate_against, validate_submission, with_contents
from harness.errors import BadInput
from harness.storage.atomic import write_text
from retrievers.base import Document, Query, Ranking, Turn


def lists(path):
    """query_id -> doc_ids."""
    read = read_predictions(path)
    assert read.docs.dtype == np.int32
    assert len(set(read.doc_ids)) == len(read.doc_ids)
    rows = zip(read.query_ids, read.docs.tolist(), strict=True)
    return {query_id: [read.doc_ids[doc] for doc in row if doc >= 0] for query_id, row in rows}


def write(tmp_path, content, name="p.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_contest_rows_keep_order_and_duplicates(tmp_path):
    content = '{"eval_id": 7, "topk": ["b", 2, "b", "a"], "answer": null}\r\n\r\n{"eval_id": "x", "topk": []}\r\n'
    expected = {"7": ["b", "2", "b", "a"], "x": []}
    assert lists(write(tmp_path, content)) == expected
    assert lists(write(tmp_path, "\ufeff" + content)) == expected
    assert lists(write(tmp_path, gzip.compress(content.encode()))) == expected
    assert lists(write(tmp_path, '{"eval_id": 7, "topk": []}')) == {"7": []}


def test_a_trec_run_is_ordered_as_trec_eval_orders_it(tmp_path):
    """Worked by hand: by score, not by rank; ties by doc_id descending in bytes; scores compared as float32."""
    content = """\
2 Q0 z 1 0.5 run
1 Q0 a 1 1.0 run
1\tQ0\tB\t9\t2.0\trun
1 Q0 b 2 1.00000001 run
1 Q0 가 3 1 run
1 Q0 c 4 1.0000002 run
1 Q0 d 5 -1e-3 run
"""
    # B first (2.0); c beats 1.0 in float32 (next step is 1.00000012); b = a = 가 = 1.0f, then 가 > b > a
    assert lists(write(tmp_path, content)) == {"2": ["z"], "1": ["B", "c", "가", "b", "a", "d"]}


def order_of_trec_eval(scores):
    """The order in which trec_eval sees a list: each document in turn is the only relevant one, and tells its rank."""
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator({doc_id: {doc_id: 1} for doc_id in scores}, {"recip_rank"})
    found = evaluator.evaluate({doc_id: dict(scores) for doc_id in scores})
    return sorted(scores, key=lambda doc_id: -found[doc_id]["recip_rank"])


IDS = st.sampled_from(["a", "B", "b", "ab", "é", "가", "\U0001f600", "\uffff", "10", "9"])
TIES = st.sampled_from([0.0, -0.0, 1.0, 1 + 1e-9, 1 + 1e-7, 1 + 2e-7, -1.0, 1e300, 1e301, 1e-50, 2.0**24, 2.0**24 + 1])


@given(st.dictionaries(IDS, TIES, min_size=1))
def test_the_order_of_ties_is_that_of_trec_eval(tmp_path, scores):
    path = write(tmp_path, "".join(f"q Q0 {doc_id} 0 {score!r} run\n" for doc_id, score in scores.items()))
    assert lists(path) == {"q": order_of_trec_eval(scores)}


ids = st.text(string.ascii_letters + string.digits + "가나다#:-_.", min_size=1, max_size=5)
scores = st.floats(-1e6, 1e6, width=32)
rankings = st.dictionaries(ids, st.dictionaries(ids, scores, max_size=4), min_size=1, max_size=4)


@given(rankings)
def test_a_ranking_comes_back_from_both_formats(tmp_path, rows):
    """From a TREC run with the documents of equal score the other way round; from contest rows as it was."""
    ranking = Ranking.from_scores(rows)
    path = write(tmp_path, "".join(ranking.to_trec("tag")))
    expected = {q: [d for _, d in sorted(((s, d) for d, s in row.items()), reverse=True)] for q, row in rows.items()}
    if any(rows.values()):
        assert lists(path) == {query_id: row for query_id, row in expected.items() if row}
    texts = {doc_id: Document(doc_id, "text") for doc_id in ranking.doc_ids}
    write_text(path, json_text(submission_rows([Query.of(q, "?") for q in ranking.query_ids], ranking, texts)))
    assert lists(path) == {query_id: [doc_id for doc_id, _ in ranking.row(i)] for i, query_id in enumerate(rows)}


MALFORMED = [
    ("", r": the file holds no rows"),
    ('{"eval_id": 7, "top_k": []}', r":1: topk is missing .*There is 'top_k'\. Did you mean 'topk'"),
    ('{"eval_id": 7, "topk": "d1"}', r":1: topk is 'd1', but must be a list"),
    ('{"eval_id": 7, "topk": [1.5]}', r":1: an id in topk is 1\.5"),
    ('{"eval_id": 7, "topk": []}\n\n{"eval_id": "7", "topk": []}', r":3: eval_id '7' is already at .*:1"),
    ('{"eval_id": 7, "topk": []}\n1 Q0 a 1 1.0 run', r":2: broken JSON"),
    ('[{"eval_id": 7, "topk": []}]', r":1: this is a JSON array"),
    (
        '{"7": {"d1": 0.5}, "8": {}}',
        r":1: an object that maps queries to lists .* Give JSON lines \{eval_id, topk",
    ),
    ("just words", r":1: 2 fields\. A TREC run has six: query_id Q0 doc_id rank score tag\. Contest predictions are"),
    ("7 Q0 d1 1 0.5 my run", r":1: 7 fields"),
    ("7 Q0 d1 1 1.0 run\n7 Q0 d2 1 nan run", r":2: score 'nan' is not a finite number"),
    ("7 Q0 d1 1 1.0 run\n8 Q0 d1 1 1.0 run\n7 Q0 d1 2 0.5 run", r":3: query '7' already has document 'd1' at .*:1\."),
    ("7 Q0 d1 1 1.0 run\n{}", r":2: 1 fields"),
]


@pytest.mark.parametrize(("content", "expected"), MALFORMED)
def test_malformed_predictions_are_refused_with_place_and_remedy(tmp_path, content, expected):
    with pytest.raises(BadInput, match=r"p\.csv" + expected):
        read_predictions(write(tmp_path, content))


# ---- submissions

QUERIES = [Query("7", (Turn("user", "왜?"),), 7), Query.of("x", 'say "yes"')]
TEXTS = {"d1": Document("d1", "달은\n위성", "제목"), "3": Document("3", "물", native_id=3)}
RANKING = Ranking.from_scores({"7": {"d1": 2 / 3, "3": 1.0}, "x": {}})


def test_submissions_are_byte_stable():
    assert json_text(submission_rows(QUERIES, RANKING, TEXTS)) == (
        '{"eval_id": 7, "standalone_query": "왜?", "topk": [3, "d1"], "answer": "", "references": '
        '[{"score": 1.0, "content": "물"}, {"score": 0.666667, "content": "달은\\n위성"}]}\n'
        '{"eval_id": "x", "standalone_query": "say \\"yes\\"", "topk": [], "answer": "", "references": []}\n'
    )
    with pytest.raises(ValueError, match="needs the ranking's queries"):
        list(submission_rows(QUERIES[::-1], RANKING, TEXTS))


def test_texts_that_were_left_out_are_put_back(tmp_path):
    """A trial's predictions carry no texts; with them they are byte for byte what a single run writes."""
    light, full = tmp_path / "light", json_text(submission_rows(QUERIES, RANKING, TEXTS))
    bare = json_text(submission_rows(QUERIES, RANKING, TEXTS, contents=False))
    for lengths in (RANKING.lengths, 0 * RANKING.lengths, RANKING.lengths):  # the last time from memory
        shown = json_text(submission_rows(QUERIES, RANKING.cut(lengths), TEXTS, contents=False))
        assert bare_text(QUERIES, RANKING, lengths, TEXTS) == shown
    assert shown == bare
    write_text(light, bare)
    assert "위성" not in light.read_text("utf-8")
    assert with_contents(light, TEXTS) == full
    write_text(light, full)
    assert with_contents(light, TEXTS) == full


ROW = '{"eval_id": 7, "topk": ["a", "b"]}\n'
REST = '{"eval_id": "x", "topk": []}\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (ROW, r"p\.csv: 1 of 2 queries are missing: x"),
        (ROW + REST + ROW, r"p\.csv:3: eval_id '7' is already at .*p\.csv:1"),
        (ROW + REST + REST.replace("x", "y"), r"p\.csv:3: the dataset has no query 'y'"),
        (ROW.replace("b", "c") + REST, r"p\.csv:1: the dataset has no document c"),
        (ROW.replace('"b"', '"b", "b"') + REST, r"p\.csv:1: topk has 3 ids, but top_k is 2\n.*:1: topk names b twice"),
        (ROW.replace('"b"', '"b", 5') + REST, r"topk has 3 ids, but top_k is 2\n.*no document 5"),
        ("7 Q0 a 1 1.0 run", r"p\.csv:1: "),
    ],
)
def test_unsound_submissions_are_refused(tmp_path, content, expected):
    validate_submission(write(tmp_path, REST + ROW), ["7", "x"], ["a", "b"], 2)
    with pytest.raises(BadInput, match=expected):
        validate_submission(write(tmp_path, content), ["7", "x"], {"a", "b"}, 2)


def test_many_problems_are_cut_short(tmp_path):
    path = write(tmp_path, "".join(f'{{"eval_id": {i}, "topk": ["z"]}}\n' for i in range(99)))
    with pytest.raises(BadInput, match=r"not a valid submission:\n(.*\n){10}  and 89 more\nCreate the file again"):
        validate_submission(path, [str(i) for i in range(99)], {"a"}, 3)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (ROW, r"p\.csv has 1 query that .*sample lacks: x"),
        (ROW + REST + REST.replace("x", "y"), r"p\.csv lacks 1 query of .*sample: y"),
        (REST + ROW, r"p\.csv:1: the order differs: eval_id is 7 here and 'x' at .*sample:1"),
        (ROW.replace("7", '"7"') + REST, r"p\.csv:1: the type differs: eval_id is 7 here and '7' at .*sample:1"),
        ("", r"sample: the file holds no rows"),
    ],
)
def test_against_a_sample_submission(tmp_path, sample, expected):
    path = write(tmp_path, ROW + REST)
    validate_against(path, path)
    with pytest.raises(BadInput, match=expected):
        validate_against(path, write(tmp_path, sample, "sample"))


def test_real_contest_submissions(real_data):
    folder = real_data / "science_qa"
    sample = lists(folder / "sample_submission.csv")
    assert (len(sample), sum(not topk for topk in sample.values())) == (220, 18)
    assert sample["78"][0] == "c63b9e3a-716f-423a-9c9b-0bcaa1b9f35d"
    query_ids = [str(row["eval_id"]) for _, row in json_lines(folder / "eval.jsonl")]
    doc_ids = [row["docid"] for _, row in json_lines(folder / "documents.jsonl")]
    submissions = sorted((folder / "submissions").iterdir())
    assert len(submissions) == 5
    for path in [*submissions, folder / "sample_submission.csv"]:
        if "HM_output" in path.name:  # two queries short, which a mean over the predicted ones would not show
            with pytest.raises(BadInput, match="2 of 220 queries are missing"):
                validate_submission(path, query_ids, doc_ids, 3)
            with pytest.raises(BadInput, match="lacks 2 queries"):
                validate_against(path, folder / "sample_submission.csv")
        else:
            validate_submission(path, query_ids, doc_ids, 3)
    with pytest.raises(BadInput, match=r"questions_199_run\.jsonl:1: eval_id is missing .*Did you mean 'eval_id'"):
        read_predictions(folder / "questions_199_run.jsonl")


@pytest.mark.parametrize("name", ["trec_eval/results.test", "cranfield/runs/standard_classic.run"])
def test_real_trec_runs_have_the_order_of_trec_eval(real_data, name):
    found = lists(real_data / name)
    lines = [line.split() for line in (real_data / name).read_text().splitlines()]
    assert sum(map(len, found.values())) == len(lines)
    for query_id in list(found)[:3]:
        scores = {doc_id: float(score) for query, _, doc_id, _, score, _ in lines if query == query_id}
        assert found[query_id] == order_of_trec_eval(scores)
