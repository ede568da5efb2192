"""What a watch keeps for the next: documents by their hashes, and a state that a stopped call leaves whole."""

import pytest
from logged_runs import DATA

from harness.analysis.guard.watch_series import WatchSeries, WatchState, documents_change
from harness.data.dataset import Dataset, in_memory
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.tracking.tracker import RunRecord
from retrievers.base import Document

DOCUMENTS = [Document(row["docid"], row["content"]) for row in DATA["documents.jsonl"]]


def dataset(*documents):
    return Dataset("toy", in_memory(documents), (), Qrels({"7": {"d3": 1.0}}))


def state_of(data, **fields):
    hashes = documents_change(WatchState(), data)[1]
    return WatchState(step=1, fingerprint=data.fingerprints["documents"], documents=hashes, **fields)


@pytest.mark.parametrize(
    ("today", "found", "said"),
    [
        (DOCUMENTS, [0, 0, 0, 0], "Documents since the last watch: no change; 3 in all."),
        (
            [*DOCUMENTS, Document("d0", "바다")],
            [1, 0, 0, 0],
            "Documents since the last watch: 1 new; 4 in all. Relevant to labelled queries: 0 of the changed ones.",
        ),
        (
            [DOCUMENTS[0], Document("d3", "달", title="모양")],
            [0, 1, 1, 1],
            "Documents since the last watch: 1 gone, 1 changed; 2 in all. Relevant to labelled queries: 1 of the "
            "changed ones.",
        ),
        ([DOCUMENTS[0], DOCUMENTS[1], Document("d3", DOCUMENTS[2].text, source="elsewhere")], [0, 0, 0, 0], None),
    ],
)
def test_documents_that_come_go_and_change(today, found, said):
    change, hashes = documents_change(state_of(dataset(*DOCUMENTS)), dataset(*today))
    assert [*(ids.count for ids in change.lists.values()), change.relevant] == found
    assert hashes.keys() == {one.doc_id for one in today}
    assert said in (None, change.sentence)


def test_a_title_is_not_a_text():
    """The hash separates the parts of a document."""
    pair = Document("a", "x y"), Document("a", "y", "x")
    one, other = (documents_change(WatchState(), dataset(document))[1] for document in pair)
    assert one != other


def test_long_lists_are_cut():
    change, _ = documents_change(state_of(dataset(*DOCUMENTS)), dataset(*(Document(f"n{n}", "") for n in range(7))))
    new = change.lists["new"]
    assert (new.count, new.first, new.text) == (7, [f"n{n}" for n in range(5)], "n0, n1, n2, n3, n4 and 2 more")


@pytest.mark.stored
def test_a_stopped_call_leaves_the_earlier_state(tracker, monkeypatch):
    first, second = (state_of(dataset(*DOCUMENTS[:n]), baseline=str(n)) for n in (2, 3))
    assert WatchSeries.read(tracker, "e").state == WatchState()
    series = WatchSeries.read(tracker, "e")
    run_id = series.add(first, {"objective": 0.5}, {"watch.outcome": "holds"})
    with monkeypatch.context() as patch:  # the files are stored, the tags are not
        patch.setattr(tracker, "_log_batch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            WatchSeries.read(tracker, "e").add(WatchState(**{**vars(second), "step": 2}), {}, {})
    again = WatchSeries.read(tracker, "e")
    assert (again.run.run_id, again.state) == (run_id, first)
    again.add(WatchState(**{**vars(second), "step": 2}), {"objective": 0.25}, {})
    assert WatchSeries.read(tracker, "e").state.baseline == "3"
    points = tracker.client.get_metric_history(run_id, "objective")
    assert [(one.step, one.value) for one in points] == [(1, 0.5), (2, 0.25)]


def test_a_first_watch_that_was_stopped_is_continued(tracker):
    run_id = tracker.begin(RunRecord("e", "watch", tags={"harness.verb": "watch"}))
    assert WatchSeries.read(tracker, "e").state.step == 0
    assert WatchSeries.read(tracker, "e").add(WatchState(step=1), {}, {}) == run_id
    assert tracker.run(run_id).status == "FINISHED"


@pytest.mark.local
def test_an_edited_state_is_refused(tracker):
    run_id = WatchSeries.read(tracker, "e").add(WatchState(step=1), {}, {})
    (tracker.place(run_id) or tracker.files.download(run_id, "watch_1.json.gz", tracker.outputs).parent).joinpath(
        "watch_1.json.gz"
    ).write_bytes(b"{}")
    with pytest.raises(BadInput, match=r"watch_1\.json\.gz of run .* has changed since the run logged it"):
        WatchSeries.read(tracker, "e")
