"""The same texts, cut in different ways: what compares, by what, and where it is said."""

import shutil

import pytest

from harness.corpus.chunked import SAMPLE

SWEEP = ("sweep", "dataset=chunked", "tokenizer=word", "experiment_name=e", "dataset.chunk.size=100,400")
RUN = ("run", "dataset=chunked", "tokenizer=word", "experiment_name=e", "format=json")


@pytest.mark.slow
def test_sizes_of_chunks_are_swept_once_prepared(harness):
    """By the default objective each size stands alone; by characters of evidence they are ranked together."""
    said = " ".join(harness(*SWEEP).text.split())
    assert "Trials that differ in dataset.chunk.size are not comparable: they form 2 groups" in said
    assert "objective=span_recall@3 counts characters of evidence, and can rank all trials together." in said
    ranked = harness(*SWEEP, "objective=span_recall@3", "format=json").json
    assert (ranked["groups"], ranked["trials"]["finished"], ranked["best"]["value"] > 0) == ([], 2, True)
    assert "span_recall@3 rises with their length" in " ".join(ranked["notes"])


@pytest.mark.slow
def test_a_search_needs_an_objective_that_does_not_depend_on_the_cut(harness):
    search = (*SWEEP[:-1], "dataset.chunk.size=int(interval(100,400))", "search=tpe", "search.trials=2")
    assert harness(*search).refusal.rstrip().endswith("Or search with objective=span_recall@3.")
    assert harness(*search, "objective=span_recall@3", "format=json").json["trials"]["finished"] == 2


def test_runs_compare_by_spans_and_with_a_note_by_documents(harness):
    """Two runs that differ in the size of the chunks alone."""
    runs = [harness(*RUN, f"dataset.chunk.size={size}", "objective=span_recall@3").json for size in (100, 400)]
    ids = [run["run_id"] for run in runs]
    assert runs[1]["best_before"]["run_id"] == ids[0]
    found = harness("compare", "experiment_name=e", "metric=span_recall@3", "format=json").json
    assert {one["run_id"] for one in found["runs"]} == {*ids}
    assert any("cut from the same texts in different ways" in note for note in found["notes"])
    words = ("metric=modified_map@3", f"runs=[{','.join(ids)}]", "format=json")
    by_documents = harness("compare", "experiment_name=e", *words).json
    assert any(note.endswith("as metric=span_recall@3 does.") for note in by_documents["notes"])
    marks = [one["relevant"] for query in by_documents["changed"] for row in query["documents"].values() for one in row]
    assert True in marks
    assert harness("runs", "experiment_name=e", "format=json").json["groups"][0]["objective"] == "span_recall@3"


def test_runs_by_documents_do_not_rank_each_other(harness):
    first, second = (harness(*RUN, f"dataset.chunk.size={size}").json for size in (100, 400))
    assert first["objective"]["name"] == second["objective"]["name"] == "modified_map@3"
    assert second["best_before"] is None
    assert len(harness("runs", "experiment_name=e", "format=json").json["groups"]) == 2


def test_a_run_is_reproduced_from_files_that_have_moved(harness, tmp_path):
    for name in ("profiles", "testset"):
        shutil.copytree(SAMPLE / name, tmp_path / name)
    words = [f"dataset.files=[{tmp_path}/profiles/*.txt]", f"dataset.testset={tmp_path}/testset"]
    run = harness(*RUN, *words).json["run_id"]
    (tmp_path / "profiles").rename(tmp_path / "texts")
    assert harness("reproduce", f"run={run}").code == 2
    assert harness("reproduce", f"run={run}", f"data.files={tmp_path}/texts/*.txt").text
