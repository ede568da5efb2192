"""Traces: which queries get one, what its spans say, and that all of them arrive."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.tracking import MlflowClient

from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.experiment.plan import Plan
from harness.experiment.steps import Outcome
from harness.gates.gate import ALL, Decision
from harness.recording.traces import CONTENT, DOCUMENTS, Tracer
from harness.storage.cache import Cache
from harness.tracking import mlflow_spans
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.mlflow_spans import Trace, TraceSpan
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import RunRecord
from retrievers.base import Document, Query, Ranking

TOY = ("run", "dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "format=json")


@pytest.fixture
def traced(harness, toy, tracker):
    """Run with these words; query_id -> its trace as MLflow gives it back, of that run alone."""

    def call(*words):
        found = harness(*TOY, *words).json
        client = tracker.client
        experiment_id = client.get_run(found["run_id"]).info.experiment_id
        traces = client.search_traces(locations=[experiment_id], run_id=found["run_id"])
        assert len(traces) == found["traces"]
        assert {trace.info.tags["run_id"] for trace in traces} <= {found["run_id"]}
        return {trace.info.tags["query_id"]: trace for trace in traces}

    return call


def one(trace, name):
    [found] = [span for span in trace.data.spans if span.name == name]
    return found


def label(toy, grades):
    rows = [{"eval_id": query_id, "relevant": relevant} for query_id, relevant in grades.items()]
    (toy / "qrels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def test_a_trace_has_a_span_for_every_step(traced):
    from mlflow.entities import Document as Shown

    found = traced("retriever=hybrid_lexical", "gate=score", "gate.source=bm25", "gate.threshold=1", "trace=all")
    assert set(found) == {"7", "3", "5"}
    trace = found["7"]
    names = {span.span_id: span.name for span in trace.data.spans}
    spans = sorted(trace.data.spans, key=lambda span: span.start_time_ns)
    assert {(span.name, span.span_type, names.get(span.parent_id)) for span in spans} == {
        ("retrieval", "CHAIN", None), ("bm25", "RETRIEVER", "retrieval"), ("tokenise", "PARSER", "bm25"),
        ("bigram", "RETRIEVER", "retrieval"), ("tokenise", "PARSER", "bigram"), ("fusion", "CHAIN", "retrieval"),
        ("gate", "GUARDRAIL", "retrieval"),
    }  # fmt: skip
    steps = [span.name for span in spans if names.get(span.parent_id) == "retrieval"]
    assert steps == ["bm25", "bigram", "fusion", "gate"]

    root, asked = one(trace, "retrieval"), "달의 모양은 왜 변해?"
    assert root.inputs == {"query": asked, "messages": [{"role": "user", "content": asked}]}
    assert trace.info.request_preview == asked
    # d3 shares 달의, 모양은 and 변-; d1 shares no more than bigrams that d3 has too; d2 shares nothing
    assert [Shown(**document).id for document in root.outputs] == ["d3"]
    assert root.get_attribute("relevant_at") == {"d3": 1, "d1": None}
    bm25 = one(trace, "bm25")
    assert bm25.outputs[0]["page_content"] == "달의 모양은 한 달 동안 변한다"
    assert bm25.outputs[0]["metadata"] | {"score": 0} == {
        "relevance": 2, "rank": 1, "score": 0, "doc_id": "d3", "title": "",
    }  # fmt: skip
    assert "mean" in bm25.get_attribute("duration")
    assert bm25.end_time_ns > bm25.start_time_ns
    gate, signal = one(trace, "gate"), pytest.approx(bm25.outputs[0]["metadata"]["score"], abs=1e-6)
    assert gate.inputs == {"signal": signal, "features": [["bm25", "top_score"]], "thresholds": [1]}
    assert gate.outputs == {"retrieve": True, "shown_at_most": 3}
    assert one(found["5"], "gate").outputs == {"retrieve": False, "shown_at_most": 0}
    assert one(found["5"], "retrieval").outputs == []


@pytest.mark.slow
def test_errors_are_the_labelled_queries_below_1_each_with_the_kind_of_its_loss(traced, toy):
    # 7: d3 comes first and d1, the relevant one, after it or not at all. 3: needs nothing, and d2 comes back.
    # 5: shares no term with any document, so that d2 is not found.
    label(toy, {7: ["d1"], 3: [], 5: ["d2"]})
    found = traced("trace=errors", "tokenizer.low=1", "tokenizer.high=1")
    tags = {query_id: trace.info.tags for query_id, trace in found.items()}
    assert {query_id: (one["loss"], one["score"]) for query_id, one in tags.items()} == {
        "7": ("misranked", "0.5000"), "3": ("wrongly_returned", "0.0000"), "5": ("not_found", "0.0000"),
    }  # fmt: skip
    assert {one["objective"] for one in tags.values()} == {"modified_map@3"}
    found = traced("trace=errors", "gate=score", "gate.threshold=1000")
    lost = {query_id: trace.info.tags["loss"] for query_id, trace in found.items()}
    assert lost == {"7": "wrongly_withheld", "5": "not_found"}
    label(toy, {7: ["d3"], 3: ["d2"]})
    assert traced("trace=errors") == {}  # 5 is not labelled


def test_what_is_traced_is_neither_searched_nor_tokenised_again_and_no_other_run(traced, toy, tracker, monkeypatch):
    label(toy, {7: ["d3"]})
    assert traced() == {}
    monkeypatch.setattr("retrievers.lexical.tokenize.CharNgram.__call__", None)
    monkeypatch.setattr("retrievers.lexical.bm25.BM25.search", None)
    random.seed(0)
    first = traced("trace=all")
    random.seed(0)
    second = traced("trace=all")  # another run's: a seed does not make the second overwrite the first
    assert not {one.info.trace_id for one in first.values()} & {one.info.trace_id for one in second.values()}
    assert one(first["7"], "tokenise").outputs[:3] == ["달의", "모양", "양은"]
    plain, *others = tracker.runs("retrieval", {})
    for run in others:
        assert (run.name, run.params, run.tags["trial_key"]) == (plain.name, plain.params, plain.tags["trial_key"])
    # 3 has no label
    assert first["7"].info.tags["score"] == "1.0000"
    assert not {"score", "objective", "loss"} & set(first["3"].info.tags)
    root = one(first["3"], "retrieval")
    assert root.get_attribute("relevant_at") is None
    assert "relevance" not in root.outputs[0]["metadata"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("trace=all", "tracking=none"), "leave out tracking=none"),
        (("trace=errors",), "trace=errors needs labels"),
        (("trace=errors", "objective=abstention_auroc"), "unlike abstention_auroc"),
        (("trace=errors", "objective=ndcg@7"), "metrics="),
        (("trace=error",), "Did you mean 'errors'?"),
    ],
)
def test_what_cannot_be_traced_is_refused_before_anything_is_done(harness, toy, words, says):
    if "needs labels" in says:
        (toy / "qrels.jsonl").unlink()
    done = harness(*TOY, *words)
    assert done.code == 2
    assert says in done.err
    assert not (toy.parent / "outputs" / "runs").exists()


def test_a_rerankers_span_has_what_it_was_given_and_what_came_of_it(tmp_path):
    # By a and b together, fused by reciprocal ranks: x 1/61 + 1/61, y 1/62 + 1/62, z 1/63. The reranker is given the
    # first two and turns them round. Texts longer than CONTENT are cut, and rankings longer than DOCUMENTS.
    query, rest = Query.of("q", "text"), dict.fromkeys("abcdefghijkl", 0.5)
    documents = tuple(Document(name, name * 400) for name in (*rest, *"xyz"))
    first = Ranking.from_scores({"q": {"x": 3.0, "y": 2.0, "z": 1.0} | rest})
    other = Ranking.from_scores({"q": {"x": 9.0, "y": 8.0}})
    reranked = Ranking.from_scores({"q": {"y": 3.0, "x": 2.0, "z": 1.0}})
    outcome = Outcome(
        (query,), {"a": first, "b": other}, reranked, Decision(np.array([ALL]), None), reranked.top(2), None, None,
        {"ms_per_query/rerank": 40.0, "ms_per_query/a": 2.0},
    )  # fmt: skip
    part = {"_target_": "retrievers.lexical.bm25.BM25"}
    plan = Plan.of({
        "dataset": {}, "retriever": {"a": part, "b": part}, "tokenizer": {}, "encoder": {}, "index": {},
        "fusion": {"_target_": "retrievers.combine.fusion.RRF", "k": 60, "weights": {}},
        "rerank": {"_target_": "retrievers.combine.rerank.CrossEncoder", "model": "m", "depth": 2},
        "gate": {"_target_": "harness.gates.gate.NoGate"}, "depth": 100, "top_k": 2, "objective": "map",
    })  # fmt: skip
    dataset = Dataset("d", documents, (query,), Qrels({"q": {"z": 1.0, "elsewhere": 1.0}}))
    root = Tracer(plan, dataset, outcome, Cache(tmp_path)).trace(0, "run").root
    assert [span.name for span in root.children] == ["a", "b", "fusion", "rerank", "gate"]
    a, b, fused, rerank, gate = root.children
    shown = [[one["id"] for one in span.outputs] for span in (fused, rerank, root)]
    assert (shown[0][:3], *shown[1:]) == (["x", "y", "z"], ["y", "x", "z"], ["y", "x"])
    assert (len(a.outputs), a.attributes["documents"], a.children) == (DOCUMENTS, 15, ())
    assert {len(one["page_content"]) for one in a.outputs} == {CONTENT}
    assert rerank.inputs == {"query": "text", "documents": ["x", "y"]}
    assert (a.ms, b.ms, rerank.ms, rerank.kind) == (2.0, 0.0, 40.0, "RERANKER")
    assert rerank.attributes["relevant_at"] == {"z": 3, "elsewhere": None}
    assert root.attributes == {"documents": 2, "relevant_at": {"z": None, "elsewhere": None}}
    assert root.ns > 42e6
    assert (gate.inputs, gate.outputs) == ({"signal": None}, {"retrieve": True, "shown_at_most": 2})


def span(ms, children=()):
    return TraceSpan("s", "TOOL", None, None, ms=ms, children=children)


MS = st.floats(0, 1e4)


@given(st.recursive(MS.map(span), lambda inner: st.builds(span, MS, st.tuples(inner, inner)), max_leaves=8))
def test_children_follow_one_another_within_their_span(root):
    stored = mlflow_spans._stored(Trace(root, {}))
    within = {span.span_id: span for span in stored}
    assert len(within) == len(stored)
    assert stored[0].parent_id is None
    assert stored[0].end_time_ns - stored[0].start_time_ns >= round(1e6 * root.ms)
    ends = {}
    for span in stored[1:]:
        outer = within[span.parent_id]
        assert max(outer.start_time_ns, ends.get(span.parent_id, 0)) <= span.start_time_ns
        assert span.end_time_ns <= outer.end_time_ns
        ends[span.parent_id] = span.end_time_ns
    assert {span.trace_id for span in stored} == {stored[0].trace_id}


def test_a_server_that_does_not_tell_its_version_cannot_be_reached(monkeypatch):
    """MLflow's own error is a NotImplementedError, as if it were a mistake of ours."""
    tracker = MlflowTracker("http://127.0.0.1:9")
    tracker._client = MlflowClient(tracker.uri)
    monkeypatch.setattr(tracker, "_experiment_id", lambda name: "1")
    with pytest.raises(Unreachable, match=r"http://127.0.0.1:9: traces cannot be stored: .*version"):
        tracker.trace("run", "e", [Trace(TraceSpan("retrieval", "CHAIN", {}, []), {})])


def test_a_run_without_its_traces_shows_its_numbers_and_fails(harness, toy, monkeypatch):
    monkeypatch.setattr(
        MlflowTracker, "trace", lambda *_: (_ for _ in ()).throw(Unreachable("http://127.0.0.1:9: 500"))
    )
    found = harness(*TOY, "trace=all")
    document = json.loads(found.out)
    assert (found.code, document["traces"], bool(document["metrics"])) == (1, 0, True)
    run = document["run_id"][:8]
    assert f"Run {run} is logged, but some of its traces are not: http://127.0.0.1:9: 500." in found.err


def test_all_of_them_arrive(tracker):
    run_id = tracker.begin(RunRecord("many", "r"))
    experiment_id = tracker.client.get_run(run_id).info.experiment_id
    root = TraceSpan("retrieval", "CHAIN", {"query": "물"}, [], children=(TraceSpan("bm25", "RETRIEVER", {}, []),))
    for first in (0, 20, 40):
        written = [Trace(root, {"query_id": str(n)}) for n in range(first, first + 20)]
        mlflow_spans.write_spans(tracker.client, run_id, experiment_id, written)
    found = tracker.client.search_traces(locations=[experiment_id], run_id=run_id, max_results=100)
    assert {trace.info.tags["query_id"] for trace in found} == {str(n) for n in range(60)}
    assert {(len(trace.data.spans), trace.info.tags["mlflow.traceName"]) for trace in found} == {(2, "retrieval")}
