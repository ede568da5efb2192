"""`harness testset freeze`, and the frozen test set as a dataset: what is kept, what is refused, other forms of it."""

from __future__ import annotations

import json
import shutil

import pytest
from frozen_sets import KIM, judged
from judged_sets import copied_set

from harness.api import load_dataset
from harness.testset.judge.judgements import Judgement, JudgementLog, text_digest
from harness.testset.pool.pool import read_pool

LEE, CHIEF = "human:lee", "adjudicated:chief"
NAMES = ["queries.jsonl", "labels.jsonl", "evidence.jsonl", "frozen.json"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("judged")
    judged(path)
    return path


@pytest.fixture
def made(original, tmp_path):
    """A working folder with docs and the judged test set ts."""
    return copied_set(original, tmp_path)


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def frozen_manifest(tmp_path, version=1):
    return json.loads((tmp_path / "ts" / f"v{version}" / "frozen.json").read_text())


def settle(made, query_id, doc_id, grade=None, needs=None, by=KIM, **more):
    """One more judgement."""
    text = text_digest(made.queries[query_id])
    one = Judgement(query_id, text, doc_id, grade, by, "2026-11-23T09:30:00Z", needs, **more)
    JudgementLog(made.folder).append([one])


def test_judgements_become_a_dataset(harness, made, tmp_path):
    found = harness("testset freeze", "testset=ts", "format=json").json
    assert found["frozen"] == "ts/v1"
    # of 16 topics, 3 and 11 are unanswerable, and 6 and 14 need no retrieval: 14 queries have 7 judged pairs each
    assert found["counts"]["kinds"] == {"conversation": 4, "fact": 4, "none": 2, "search": 4, "unanswerable": 2}
    pool = read_pool(made.folder).by_query
    pooled = sum(len(pairs) for query_id, pairs in pool.items() if made.kinds[query_id] != "none")
    assert sum(found["counts"]["pairs"].values()) == pooled
    assert (found["counts"]["checked"], found["counts"]["drawn"], found["people"]) == (6, 6, 1)
    assert found["models"] == ["tiny#0123abcd"]
    assert found["judged_until"] == "2026-11-22T09:30:00Z"

    labels = {row["eval_id"]: row for row in rows(tmp_path / "ts" / "v1" / "labels.jsonl")}
    own = made.doc_ids[0]
    checked, graded = labels["q00000"], labels["q00009"]
    assert (checked["basis"], checked["relevant"]) == ("human", {own[1]: 3}), "not what the model says"
    assert own[3] in checked["not_relevant"]
    assert (graded["basis"], [*graded["relevant"]]) == ("llm", sorted([made.doc_ids[9][1], made.doc_ids[9][3]]))
    assert labels["q00006"]["needs"] is False

    dataset = load_dataset("dataset=frozen", "dataset.path=ts/v1")
    qrels = dataset.qrels
    assert qrels.unanswerable == ("q00003", "q00011")
    assert qrels.not_relevant["q00000"] == frozenset(labels["q00000"]["not_relevant"])
    assert set(qrels.evidence) == {q for q in made.query_ids if made.kinds[q] not in ("none", "unanswerable")}
    assert qrels.checked.model.grades["q00000"] == dict.fromkeys([own[1], own[3]], 3)
    assert qrels.checked.people.grades["q00000"] == {own[1]: 3}
    assert set(qrels.checked.people.grades) == {"q00000", "q00001", "q00002", "q00004", "q00005"}, "and q00003"
    assert qrels.checked.strata == made.kinds
    assert any("people checked 5" in note for note in dataset.notes)


def test_the_same_judgements_give_the_same_bytes(harness, made, tmp_path):
    def frozen_now():
        new = harness("testset freeze", "testset=ts", "format=json").json["new"]
        return new, {path.name: path.read_bytes() for path in (tmp_path / "ts" / "v1").iterdir()}

    new, files = frozen_now()
    assert new
    assert set(files) == {*NAMES, "model_labels.jsonl", "checked_labels.jsonl"}
    assert frozen_now() == (False, files)
    shutil.rmtree(tmp_path / "ts" / "v1")
    assert frozen_now() == (True, files)


def test_a_version_is_never_overwritten(harness, made, tmp_path):
    assert harness("testset freeze", "testset=ts").code == 0
    before = (tmp_path / "ts" / "v1" / "frozen.json").read_bytes()
    settle(made, "q00009", made.doc_ids[9][3], grade=0)
    done = harness("testset freeze", "testset=ts")
    assert done.code == 2
    assert "ts/v1 is frozen already and differs (labels.jsonl, " in done.err
    assert "version=2" in done.err
    assert (tmp_path / "ts" / "v1" / "frozen.json").read_bytes() == before
    second = harness("testset freeze", "testset=ts", "version=2", "format=json").json
    assert second["judged_until"] == "2026-11-23T09:30:00Z"
    done = harness("testset freeze", "testset=ts", "formats=[trec]")
    assert done.code == 0, "an older version can still be exported"
    assert f"q00009 0 {made.doc_ids[9][3]} 3" in (tmp_path / "ts" / "v1" / "trec" / "qrels.txt").read_text()


def test_open_questions_are_refused_or_left_out(harness, made, tmp_path):
    ids = made.doc_ids
    settle(made, "q00001", ids[1][1], grade=0, by=LEE)  # kim says 3
    settle(made, "q00008", ids[8][1], grade=None)
    settle(made, "q00011", ids[11][0], grade=3)  # unanswerable
    settle(made, "q00006", None, needs=True)  # of kind none, whose documents no model judges
    settle(made, "q00014", None, needs=True)
    done = harness("testset freeze", "testset=ts")
    assert done.code == 2
    assert done.err.splitlines()[1:] == [
        "      2  no document is judged (q00006, q00014): harness testset judge testset=ts model=NAME",
        f"      1  cannot tell (q00008 / {ids[8][1]}): harness testset review testset=ts reviewer=NAME sample=open",
        f"      1  people disagree (q00001 / {ids[1][1]}): harness testset review testset=ts reviewer=NAME sample=open",
        f"      1  answered, though the query is unanswerable (q00011 / {ids[11][0]}): correct its kind and evidence "
        "in ts/queries.jsonl, or, if the document does not answer it, harness testset review testset=ts reviewer=NAME "
        "sample=open",
        "Settle them, or leave these queries out of this version: leave_out=true keeps 11 of 16 queries.",
    ]
    assert not (tmp_path / "ts" / "v1").exists()

    found = harness("testset freeze", "testset=ts", "leave_out=true", "format=json").json
    assert (found["counts"]["queries"], found["counts"]["left_out"]) == (11, 5)
    left_out = {"q00001", "q00006", "q00008", "q00011", "q00014"}
    assert {one["query"] for one in found["left_out"]} == left_out
    for name in ("labels.jsonl", "model_labels.jsonl"):
        assert {row["eval_id"] for row in rows(tmp_path / "ts" / "v1" / name)} == {*made.query_ids} - left_out
    assert {*frozen_manifest(tmp_path)["strata"]} == {*made.query_ids} - left_out

    for topic, grade in {1: 3, 8: 2, 11: 1}.items():
        settle(made, made.query_ids[topic], ids[topic][topic != 11], grade=grade, by=CHIEF)
    for query_id in ("q00006", "q00014"):
        settle(made, query_id, None, needs=False, by=CHIEF)
    found = harness("testset freeze", "testset=ts", "version=2", "format=json").json
    assert found["counts"]["pairs"]["adjudicated"] == 3
    assert found["counts"]["needs"] == {"adjudicated": 2, "draft": 8, "human": 6}


def test_relevant_from(harness, made):
    words = ["testset=ts", "relevant_from=1", "output=lenient", "leave_out=true"]  # the unanswerable are answered then
    assert harness("testset freeze", *words).code == 0
    qrels = load_dataset("dataset=frozen", "dataset.path=lenient").qrels
    pairs = read_pool(made.folder).by_query["q00009"]
    grades = {one.doc_id: made.truth("q00009", one.doc_id) for one in pairs}
    assert qrels.grades["q00009"] == {doc_id: grade for doc_id, grade in grades.items() if grade >= 1}
    assert not {"q00003", "q00011"} & {*qrels.grades, *qrels.unanswerable}


BAD = [  # words, what is done to the folders first, what the message says
    (["testset=nowhere"], None, "testset=nowhere: there is no such folder"),
    (["formats=[tree]"], None, "formats=['tree'] is not a list of contest, beir, autorag, trec. Did you mean 'trec'?"),
    (["documents=fewer"], lambda at: fewer_documents(at), "fewer lacks 1 pooled document: "),
    ([], lambda at: (at / "ts" / "pool.json").unlink(), "nothing is pooled"),
    ([], lambda at: (at / "ts" / "judgements.jsonl").unlink(), "14  no document is judged (q00000, q00001, q00002, …)"),
    (["leave_out=true"], lambda at: judged_by_nobody(at), "14  no document is judged"),
    ([], lambda at: edit_a_query(at), "1  no document is pooled (q00009): harness testset pool testset=ts experi"),
    ([], lambda at: (at / "ts" / "v1").write_text(""), "ts/v1: this is a file"),
    ([], lambda at: (at / "ts" / "v1").mkdir(), "ts/v1: the folder exists already and has no frozen.json"),
    (["output=docs"], None, "docs: the folder exists already and has no frozen.json"),
]


def edit_a_query(at):
    path = at / "ts" / "queries.jsonl"
    path.write_text(path.read_text("utf-8").replace("가람9호 첫 항해 연도", "가람9호 첫 항해는 몇 년"))


def fewer_documents(at):
    """A copy of the documents without the first one of topic 0."""
    path = shutil.copytree(at / "docs", at / "fewer") / "documents.jsonl"
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[1:]), "utf-8")


def judged_by_nobody(at):
    """Only queries that need retrieval, and no judgement."""
    (at / "ts" / "judgements.jsonl").unlink()
    path = at / "ts" / "queries.jsonl"
    path.write_text("".join(line for line in path.read_text("utf-8").splitlines(True) if '"kind": "none"' not in line))


@pytest.mark.parametrize(("words", "change", "message"), BAD)
def test_what_is_refused_leaves_nothing(harness, made, tmp_path, words, change, message):
    if change:
        change(tmp_path)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    done = harness("testset freeze", *(words if words and words[0].startswith("testset=") else ["testset=ts", *words]))
    assert done.code == 2, done.err
    assert message in done.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_an_interrupted_write_leaves_nothing_and_what_a_killed_one_left_is_removed(
    harness, made, tmp_path, monkeypatch
):
    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    before = {path.name for path in tmp_path.rglob("*")}
    with monkeypatch.context() as patch:
        patch.setattr("harness.testset.freeze.freezing.write_text", full)
        assert harness("testset freeze", "testset=ts").code == 1
    assert {path.name for path in tmp_path.rglob("*")} == before | {".v1.lock"}
    left = [tmp_path / "ts" / f".v{number}.0123abcd.unfinished" for number in (1, 2)]
    for folder in left:
        folder.mkdir()
    assert harness("testset freeze", "testset=ts").code == 0
    assert [folder.exists() for folder in left] == [False, True], "another process may be freezing the second version"


@pytest.mark.slow
def test_every_command_takes_a_frozen_test_set(harness, made, tmp_path):
    assert harness("testset freeze", "testset=ts").code == 0
    assert harness("init", "dataset=frozen", "dataset.path=ts/v1", "tokenizer=word").code == 0
    assert harness("sweep", "top_k=1,3", "format=json").json["trials"]["finished"] == 2
    predictions = next(tmp_path.rglob("predictions*"))
    assert harness("score", f"predictions={predictions}", "format=json").json["metrics"]
    assert harness("search", "query=가람9호의 첫 항해", "format=json").code == 0


def test_what_it_prints(harness, made):
    done = harness("testset freeze", "testset=ts", "formats=[beir]")
    assert done.code == 0, done.err
    assert "ts/v1 is frozen: version 1, " in done.out
    assert "For 10 queries, the need for retrieval is as drafted: people have not judged it." in done.out
    assert "ts/v1/beir: for beir; queries without labels: 2 no retrieval needed, 2 unanswerable" in done.out
    assert done.out.rstrip().endswith("harness run dataset=frozen dataset.path=ts/v1")
    (made.folder / "audit.json").unlink()
    done = harness("testset freeze", "testset=ts", "version=2")
    assert "Scores will have no honest intervals: no queries were drawn for people to check." in done.out


def test_the_agreement_that_was_measured_is_kept(harness, made, tmp_path):
    def agreement(version):
        done = harness("testset freeze", "testset=ts", f"version={version}")
        assert done.code == 0, done.err
        return done.out, frozen_manifest(tmp_path, version)["agreement"]

    out, found = agreement(1)
    assert found is None
    assert "The agreement of model and people has not been measured." in out
    assert harness("testset audit", "testset=ts").code == 0
    out, found = agreement(2)
    assert (found["stale"], found["checked"], found["models"]) == (False, 6, ["tiny#0123abcd"])
    assert 0 < found["model"]["kappa"]["value"] < 1
    assert "agree" not in out
    assert "kim" not in (tmp_path / "ts" / "v2" / "frozen.json").read_text(), "people are counted, not named"
    settle(made, "q00009", made.doc_ids[9][3], grade=0)
    out, found = agreement(3)
    assert found["stale"] is True
    assert (
        "The agreement of model and people was measured before the latest judgements. Run `harness testset audit`"
        in out
    )


def test_without_the_model_there_is_nothing_to_correct(harness, made):
    queries = [one for one in made.query_ids if made.kinds[one] != "none"]
    made.judge(
        KIM, queries, grade=lambda *pair: 1 if pair[0] == "q00010" else made.truth(*pair), sample="all", needs=True
    )
    found = harness("testset freeze", "testset=ts", "format=json").json
    assert (found["counts"]["pairs"]["llm"], found["unchecked"]) == (0, "no label comes from a model")
    qrels = load_dataset("dataset=frozen", "dataset.path=ts/v1").qrels
    assert (qrels.checked, qrels.unmet) == (None, {"q00010"}), "its whole pool is of no use, and it needs retrieval"
    assert "without relevant" in harness("testset freeze", "testset=ts").out
