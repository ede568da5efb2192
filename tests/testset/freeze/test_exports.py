"""Frozen test sets for other tools: our own readers, and ir_measures, score a run on them as on the set itself."""

import json

import pytest
from frozen_sets import frozen, judged

from harness.api import evaluate
from harness.data.contest import Contest
from harness.data.dataset import checked_dataset
from harness.data.documents_folder import DocumentsFolder
from harness.data.frozen import Frozen
from harness.data.qa import Autorag
from harness.data.trec import Beir, Trec
from harness.testset.freeze.freezing import export_testset
from harness.testset.judge.judgements import Judgement, JudgementLog, text_digest
from retrievers.base import Ranking

MEASURES = ["hit@3", "recall@5", "precision@3", "mrr", "map", "ndcg@10", "ndcg"]
UNMET = "q00009"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A frozen test set of 16 queries: 2 unanswerable, 2 that need no retrieval, and one that no document answers."""
    found = judged(tmp_path_factory.mktemp("frozen"))
    rows = map(json.loads, (found.folder / "pool.jsonl").read_text().splitlines())
    text, at = text_digest(found.queries[UNMET]), "2026-11-23T09:30:00Z"
    JudgementLog(found.folder).append(
        Judgement(UNMET, text, row["doc_id"], 1, "human:lee", at) for row in rows if row["query_id"] == UNMET
    )
    queries = found.folder / "queries.jsonl"
    queries.write_text(queries.read_text("utf-8").replace('"kind":', '"lang": "ko", "kind":'), "utf-8")
    path = frozen(found.folder)
    without = {"nothing relevant": 1, "unanswerable": 2}, {"no retrieval needed": 2, "unanswerable": 2}
    assert [one.left_out for one in export_testset(path, ["contest", "beir", "autorag", "trec"])] == [
        *without,
        *without,
    ]
    return path


@pytest.fixture(scope="module")
def dataset(made):
    return checked_dataset(Frozen(path=str(made)), "frozen")


def test_a_frozen_set_keeps_the_attributes_of_its_queries(dataset):
    assert {one.attributes["lang"] for one in dataset.queries} == {"ko"}
    assert {one.attributes["kind"] for one in dataset.queries} >= {"none", "unanswerable"}


@pytest.fixture(scope="module")
def run(dataset):
    """query_id -> the documents that an invented run finds, best first: relevant ones at some rank from 1 to 5, and
    nothing for queries without relevant documents but UNMET."""
    ids = [one.doc_id for one in dataset.documents]
    lists = {}
    for number, query in enumerate(dataset.queries):
        relevant = list(dataset.qrels.grades.get(query.query_id, ()))
        others = [one for one in ids[number : number + 12] if one not in relevant]
        needed = relevant or query.query_id == UNMET
        lists[query.query_id] = [*others[: number % 5], *relevant, *others[number % 5 :]] if needed else []
    return lists


def scored(lists, dataset, metrics=MEASURES):
    whole = {one: {doc_id: -rank for rank, doc_id in enumerate(row)} for one, row in lists.items()}
    found = evaluate({one: row for one, row in whole.items() if one in dataset.qrels.grades}, dataset, metrics).metrics
    return {name: found[name] for name in metrics}


def test_the_contest_has_no_way_to_say_that_nothing_relevant_was_found(made, dataset, run):
    again = checked_dataset(Contest(path=str(made / "contest")), "contest")
    assert UNMET not in again.qrels.grades, "an empty list would say that it needs no retrieval"
    assert {one: grades for one, grades in dataset.qrels.grades.items() if one != UNMET} == again.qrels.grades
    for part in ("documents", "queries"):
        assert again.fingerprints[part] == dataset.fingerprints[part]
    few = {one: row for one, row in run.items() if one != UNMET}
    metrics = [*MEASURES, "modified_map@3"]
    assert scored(few, again, metrics) == scored(few, dataset, metrics)


def test_beir_and_trec_keep_what_was_judged(made, dataset, run):
    expected = scored(run, dataset)
    beir = checked_dataset(Beir(path=str(made / "beir")), "beir")
    assert scored(run, beir) == expected
    trec = Trec(qrels=str(made / "trec" / "qrels.txt")).qrels()
    for again in (beir.qrels, trec):
        needing = {one: grades for one, grades in dataset.qrels.grades.items() if dataset.qrels.needs_retrieval(one)}
        assert again.grades == needing
        assert again.not_relevant == {one: dataset.qrels.not_relevant[one] for one in needing}
        assert again.unmet == {UNMET}
    texts = {one.query_id: one.text for one in dataset.queries}
    assert {one.query_id: one.text for one in beir.queries} == {one: texts[one] for one in needing}
    ids, topics = ((made / "trec" / name).read_text().splitlines() for name in ("documents.txt", "topics.tsv"))
    assert ids == [chunk.document.doc_id for chunk in DocumentsFolder(made / "../../docs").chunks()]
    assert dict(line.split("\t") for line in topics) == texts


def test_ir_measures_scores_the_trec_files_the_same(made, dataset, run, tmp_path):
    import ir_measures

    theirs = {"R@5": "recall@5", "P@3": "precision@3", "RR": "mrr", "AP": "map", "nDCG@10": "ndcg@10", "nDCG": "ndcg"}
    scores = {one: {doc_id: -float(rank) for rank, doc_id in enumerate(row)} for one, row in run.items()}
    (tmp_path / "run.trec").write_text("".join(Ranking.from_scores(scores).to_trec("tag")))
    qrels = ir_measures.read_trec_qrels(str(made / "trec" / "qrels.txt"))
    lists, measures = ir_measures.read_trec_run(str(tmp_path / "run.trec")), map(ir_measures.parse_measure, theirs)
    found = {str(name): value for name, value in ir_measures.calc_aggregate([*measures], [*qrels], lists).items()}
    ours = scored(run, dataset)
    assert found == pytest.approx({name: ours[our] for name, our in theirs.items()}, abs=1e-9)


def test_autorag_knows_no_grades(made, dataset, run):
    from pyarrow import parquet

    again = checked_dataset(Autorag(path=str(made / "autorag")), "autorag")
    assert {one: set(grades) for one, grades in again.qrels.grades.items()} == {
        one: set(grades) for one, grades in dataset.qrels.grades.items() if one != UNMET
    }
    binary = ["hit@3", "recall@5", "mrr", "map"]
    few = {one: row for one, row in run.items() if one != UNMET}
    assert scored(few, again, binary) == scored(few, dataset, binary)
    assert [one.text for one in again.documents] == [one.indexed_text for one in dataset.documents]
    corpus = parquet.read_table(made / "autorag" / "corpus.parquet").to_pylist()
    assert corpus[0]["metadata"]["last_modified_datetime"].isoformat() == "2026-11-23T09:30:00"
    questions = {row["qid"]: row for row in parquet.read_table(made / "autorag" / "qa.parquet").to_pylist()}
    assert (questions["q00006"]["retrieval_gt"], questions["q00006"]["generation_gt"]) == ([], [])
