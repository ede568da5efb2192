"""Frozen test sets are read as they were frozen, and anything else is refused."""

import json
import shutil
from pathlib import Path

import pytest
from frozen_sets import frozen, judged, sealed

from harness.data.dataset import checked_dataset
from harness.data.frozen import Frozen
from harness.errors import BadInput


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("frozen")
    frozen(judged(path).folder)
    return path


@pytest.fixture
def made(original, tmp_path, monkeypatch):
    """A working folder with docs and ts/v1."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(path="ts/v1", **more):
    return checked_dataset(Frozen(path=path, **more), "frozen")


def edited(path, change):
    """Change the rows of a file of JSON lines. change: (number, row) -> row, or None to drop it."""
    rows = [change(number, json.loads(line)) for number, line in enumerate(path.read_text("utf-8").splitlines())]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows if row), "utf-8")


def copied(path, name):
    return Path(shutil.copytree(path, name))


def test_more_documents_are_unjudged_and_change_no_label(made):
    before = read()
    more = copied("docs", "more")
    row = json.loads((more / "documents.jsonl").read_text("utf-8").splitlines()[0])
    [span] = row["spans"]
    half = row | {"docid": "new", "content": row["content"][:5], "spans": [span | {"end": span["start"] + 5}]}
    with (more / "documents.jsonl").open("a") as file:
        file.write(json.dumps(half) + "\n")
    after = read(documents="more")
    assert after.qrels.grades == before.qrels.grades
    assert after.qrels.evidence == before.qrels.evidence
    assert any("new documents are unjudged" in note for note in after.notes)
    assert not any("unjudged" in note for note in before.notes)


def test_the_folder_may_move(made):
    before = read()
    shutil.copytree("ts/v1", "elsewhere")
    files(lambda row: row | {"documents": row["documents"] | {"path": "../docs"}})(made / "elsewhere")
    assert read("elsewhere").fingerprints == before.fingerprints


def test_labels_of_a_model_alone_come_with_a_warning(made):
    warning = "Intervals leave out the model's errors"
    assert not any(note.startswith(warning) for note in read().notes)
    (made / "ts" / "audit.json").unlink()
    frozen(made / "ts", version=2)
    assert any(note.startswith(warning) for note in read("ts/v2").notes)


def test_fingerprints_tell_what_scores_and_estimates_depend_on(made):
    """Of the labels that people checked, too: the scores are the same without them, and the intervals are not."""
    before = read().fingerprints
    found = [before["qrels"]]
    for name, change in {
        "labels.jsonl": lambda n, row: row | {"relevant": dict.fromkeys(row["relevant"], 2)},
        "checked_labels.jsonl": lambda n, row: row if n else None,
        "model_labels.jsonl": lambda n, row: row | {"relevant": dict.fromkeys(row["relevant"], 2)},
    }.items():
        folder = copied("ts/v1", f"ts/{name}")
        edited(folder / name, change)
        sealed(folder)
        found.append(read(f"ts/{name}").fingerprints["qrels"])
    folder = copied("ts/v1", "ts/strata")
    manifest = json.loads((folder / "frozen.json").read_text())
    manifest["strata"]["q00000"] = "another"
    (folder / "frozen.json").write_text(json.dumps(manifest))
    sealed(folder)
    found.append(read("ts/strata").fingerprints["qrels"])
    assert len(set(found)) == 5


def label(**changes):
    """A change of the first label."""
    return lambda number, row: row if number else row | changes


def files(change):
    """A change of frozen.json."""

    def apply(folder):
        path = folder / "frozen.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return apply


def rewrite(name, change, seal=True):
    def apply(folder):
        edited(folder / name, change)
        if seal:
            sealed(folder)

    return apply


LABELS, QUERIES = "labels.jsonl", "queries.jsonl"
BAD = [  # change of ts/v1, what the message says
    (rewrite(LABELS, label(basis="me"), seal=False), "labels.jsonl has been edited since .*: make a new version"),
    (files(lambda row: row | {"people": 7}), "frozen.json has been edited"),
    (files(lambda row: row | {"format": 2}), "format is 2, but this harness reads format 1"),
    (files(lambda row: row | {"files": {QUERIES: "", "model_labels.jsonl": ""}}), "files are .*, but must be"),
    (lambda folder: (folder / "evidence.jsonl").unlink(), "evidence.jsonl: there is no such file"),
    (lambda folder: shutil.rmtree("docs"), "documents.path=.*there is no such folder"),
    (rewrite(LABELS, label(eval_id="x")), "labels queries that queries.jsonl does not have: x"),
    (rewrite(LABELS, lambda n, row: row if n else None), "labels.jsonl lacks 1 query: q00000"),
    (rewrite(LABELS, label(relevant={"d": 1})), "that the dataset does not have: d"),
    (lambda at: (files(lambda row: row | {"strata": {}})(at), sealed(at)), "checked queries have no stratum: q00000"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_what_is_not_as_it_was_frozen_is_refused(made, change, message):
    change(made / "ts" / "v1")
    with pytest.raises(BadInput, match=message):
        read()


def test_the_folder_of_the_test_set_is_not_a_version_of_it(made):
    with pytest.raises(BadInput, match=r"dataset.path=ts: frozen.json is missing.* Did you mean ts/v1\?"):
        read("ts")


def test_other_documents_are_refused(made):
    judged = json.loads((made / "ts" / "v1" / "labels.jsonl").read_text("utf-8").splitlines()[0])["relevant"]
    documents = copied("docs", "other") / "documents.jsonl"
    edited(documents, lambda n, row: row | {"title": "new"} if row["docid"] in judged else row)
    with pytest.raises(BadInput, match=r"other/documents.jsonl: the title or text of judged documents has changed"):
        read(documents="other")
    edited(documents, lambda n, row: None if row["docid"] in judged else row)
    message = r"other/documents.jsonl lacks 1 of the \d+ documents that were judged: .*documents=FOLDER"
    with pytest.raises(BadInput, match=message):
        read(documents="other")
