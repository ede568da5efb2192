"""Span measures: hand-worked tables, and an oracle that counts sets of positions."""

import numpy as np
import pytest
from fakes import predictions
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.data.qrels import Qrels
from harness.data.spans import Evidence, Places, Span, label
from harness.errors import BadInput
from harness.measures.judged import judge_lists
from harness.measures.measures import MEASURES, SPAN_MEASURES, of_spans, parse_measure, requested
from harness.measures.scores import ShownLists, score_lists


def piece(text, start, end, grade=1.0):
    return Evidence(Span(text, start, end), "x" * (end - start), grade=grade)


def labels(evidence, places):
    """Labels of q0, q1, ... made of evidence; a query without evidence needs no retrieval."""
    grades = {f"q{row}": label(f"q{row}", pieces, Places(places))[0] for row, pieces in enumerate(evidence)}
    kept = {f"q{row}": tuple(pieces) for row, pieces in enumerate(evidence) if pieces}
    return Qrels(grades, evidence=kept, places=places)


def values(name, listed, qrels):
    """The measure of each query of a list of lists."""
    lists = predictions({f"q{row}": docs for row, docs in enumerate(listed)})
    return parse_measure(name).values(judge_lists(lists, qrels)).tolist()


# Chunks of 100 characters that overlap by 20; "e" is the text of "d" again, in another file, as one document "twice".
PLACES = {
    "a": (Span("A", 0, 100),),
    "b": (Span("A", 80, 180),),
    "c": (Span("A", 160, 260),),
    "twice": (Span("B", 0, 50), Span("C", 10, 60)),
    "next": (Span("B", 40, 90), Span("C", 50, 100)),
}
WORKED = [
    # evidence, list, k, recall, precision; reasons in the comments
    ([piece("A", 90, 110)], ["a", "b"], 1, 10 / 20, 10 / 100),
    ([piece("A", 90, 110)], ["a", "b"], 2, 20 / 20, 20 / 180),  # [0, 180): the overlap [80, 100) counts once
    ([piece("A", 90, 110)], ["b", "b"], 2, 1.0, 20 / 100),  # a repeat shows nothing new
    ([piece("A", 90, 110)], ["c"], 3, 0.0, 0.0),
    ([piece("A", 90, 110)], [], 3, 0.0, 0.0),  # nothing is shown
    ([piece("A", 0, 60), piece("A", 40, 80)], ["a"], 1, 1.0, 80 / 100),  # evidence [0, 80), not 60 + 40
    ([piece("A", 0, 50), piece("B", 0, 50)], ["a"], 1, 50 / 100, 50 / 100),  # evidence in two texts
    ([piece("A", 0, 50), piece("B", 0, 50)], ["a", "twice"], 2, 1.0, 100 / 150),
    ([piece("C", 20, 40)], ["twice"], 1, 1.0, 20 / 50),  # found at its second place, and shown once
    ([piece("C", 20, 40), piece("B", 10, 30)], ["twice"], 1, 1.0, 20 / 50),  # the same passage twice: both found
    ([piece("C", 20, 40)], ["twice", "next"], 2, 1.0, 20 / 100),  # C [10, 60), and B [40, 90) for "next": no overlap
    ([piece("C", 20, 60)], ["twice", "next"], 2, 1.0, 40 / 90),  # C [10, 60) and C [50, 100): union [10, 100)
    ([piece("A", 240, 280)], ["c"], None, 20 / 40, 20 / 100),  # half of it is in no document
]


@pytest.mark.parametrize(("evidence", "listed", "k", "recall", "precision"), WORKED)
def test_worked_by_hand(evidence, listed, k, recall, precision):
    qrels, cut = labels([evidence], PLACES), "" if k is None else f"@{k}"
    assert values(f"span_recall{cut}", [listed], qrels) == pytest.approx([recall])
    assert values(f"span_precision{cut}", [listed], qrels) == pytest.approx([precision])


def test_queries_without_evidence_have_no_value():
    qrels = labels([[piece("A", 0, 50)], []], PLACES)
    np.testing.assert_array_equal(values("span_recall@3", ["a", "a"], qrels), [1.0, np.nan])
    np.testing.assert_array_equal(values("span_precision@3", ["a", "a"], qrels), [0.5, np.nan])


# ---- an independent oracle: sets of positions

TEXTS = st.sampled_from("AB")
RANGE = st.tuples(TEXTS, st.integers(0, 12), st.integers(1, 8)).map(lambda r: Span(r[0], r[1], r[1] + r[2]))


def positions(spans):
    return {(span.text, place) for span in spans for place in range(span.start, span.end)}


def shown_places(spans, wanted):
    """The place of a document that has most of the evidence, the first of equals, by counting positions."""
    most = max(len(positions([span]) & wanted) for span in spans)
    return positions([next(span for span in spans if len(positions([span]) & wanted) == most)])


@settings(deadline=None, max_examples=100)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(RANGE, min_size=1, max_size=3).map(tuple), min_size=1),
    st.lists(RANGE, min_size=1, max_size=3),
    st.data(),
)
def test_span_measures_are_those_of_sets_of_positions(places, evidence, data):
    listed = data.draw(st.lists(st.sampled_from(sorted(places)), max_size=5))
    k = data.draw(st.none() | st.integers(1, 6))
    wanted = positions(evidence)
    everywhere = set().union(*(positions(places[doc]) for doc in listed[:k]))
    once = set().union(*(shown_places(places[doc], wanted) for doc in listed[:k]))
    pieces = tuple(piece(span.text, span.start, span.end) for span in evidence)
    qrels, cut = Qrels({"q0": {"a": 1.0}}, evidence={"q0": pieces}, places=places), "" if k is None else f"@{k}"
    assert values(f"span_recall{cut}", [listed], qrels) == pytest.approx([len(everywhere & wanted) / len(wanted)])
    expected = len(once & wanted) / len(once) if once else 0.0
    assert values(f"span_precision{cut}", [listed], qrels) == pytest.approx([expected])


@settings(deadline=None, max_examples=100)
@example({"a": (Span("A", 0, 2),), "b": (Span("A", 0, 1), Span("A", 0, 2))}, [(Span("A", 0, 5), 1.0)])
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(RANGE, min_size=1, max_size=3).map(tuple)),
    st.lists(st.tuples(RANGE, st.sampled_from([1.0, 2.0])), min_size=1, max_size=3),
)
def test_labels_are_those_of_sets_of_positions(places, evidence):
    grades, findings = {}, []
    for span, grade in evidence:
        wanted = positions([span])
        shares = {doc: max(len(positions([one]) & wanted) for one in spans) for doc, spans in places.items()}
        most = max(shares.values(), default=0)
        chosen = [doc for doc, share in shares.items() if share >= len(wanted) / 2]
        if not most:
            findings.append(("uncovered", span))
        elif not chosen:
            findings.append(("split", span))
            reach = {  # of equals the first in the text
                doc: min((one.start, one.end) for one in spans if len(positions([one]) & wanted) == most)
                for doc, spans in places.items()
                if shares[doc] == most
            }
            chosen = [min(reach, key=lambda doc: (reach[doc], doc))]
        for doc in chosen:
            grades[doc] = max(grades.get(doc, 0.0), grade)
    pieces = [piece(span.text, span.start, span.end, grade) for span, grade in evidence]
    found, told = label("q0", pieces, Places(places))
    assert found == grades
    assert [(one.what, one.evidence.span) for one in told] == findings


# ---- where they are computed


def test_labels_made_of_evidence_are_scored_by_spans_too():
    qrels = labels([[piece("A", 90, 110)]], PLACES)
    spans = ["span_recall@3", "span_recall@10", "span_precision@3"]
    assert requested(["hit@1", "span_recall@3"], qrels) == ["hit@1", *spans]
    assert requested(["hit@1"], Qrels({"q0": {"a": 1.0}})) == ["hit@1"]
    assert {name.partition("@")[0] for name in SPAN_MEASURES} == set(filter(of_spans, MEASURES))


def test_other_labels_are_refused_and_documents_of_another_chunking_leave_spans_unknown():
    lists = ShownLists(predictions({"q0": ["a", "elsewhere"]}))
    with pytest.raises(BadInput, match=r"'span_recall@3' counts characters of evidence, .* dataset=testset"):
        score_lists(lists, Qrels({"q0": {"a": 1.0}}), ["hit@1", "span_recall@3"])
    found = score_lists(lists, labels([[piece("A", 90, 110)]], PLACES), ["hit@1", "span_precision@3"]).summary
    assert found["hit@1"].mean == 1.0
    assert np.isnan(found["span_precision@3"].mean)
    note = "the dataset does not have 1 listed document, such as elsewhere"
    assert found["span_precision@3"].note == note
