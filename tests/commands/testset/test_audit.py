"""`harness testset audit`: what it prints and writes, and what is missing where there is nothing to compare."""

import json

import pytest
from judged_sets import copied_set, judged_set

MODEL, KIM, LEE = "llm:judge#0123abcd", "human:kim", "human:lee"


def pooled(path, topics=16):
    found = judged_set(path, topics)
    found.pool()
    return found


def drawn(made, queries, twice=()):
    content = {"seed": 0, "strata": made.kinds, "drawn": queries, "twice": list(twice)}
    (made.folder / "audit.json").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """16 topics, judged by a lenient model; twelve are drawn and checked by kim, two of them by lee as well."""
    found = pooled(tmp_path_factory.mktemp("audited"))
    found.judge(MODEL, grade=lambda query_id, doc_id: max(2, found.truth(query_id, doc_id)) if doc_id < "4" else 0)
    queries = found.query_ids[:12]
    drawn(found, queries, queries[:2])
    found.judge(KIM, queries, needs=True, sample="audit")
    found.judge(LEE, queries[:2], needs=True, sample="audit", round=2)
    return found


@pytest.fixture
def made(original, tmp_path):
    """A copy of it in the working folder."""
    return copied_set(original.folder.parent, tmp_path)


def test_the_account_is_printed_and_kept(harness, made):
    done = harness("testset audit", "testset=ts")
    assert done.code == 0, done.err
    assert "ts: 12 of 12 drawn queries checked in full by people; they stand for 16 queries." in done.out
    assert "The model, judge#0123abcd, against people\n  A document is relevant from grade 2 on." in done.out
    assert "people: 3" in done.out
    assert "kim and lee" in done.out
    assert "people agree with the draft on 12 of 12 queries." in done.out
    assert "Of the 12 checked queries, 10 count here" in done.out  # 3 and 11 of 16 topics are unanswerable, not scored
    kept = json.loads((made.folder / "agreement.json").read_text("utf-8"))
    assert kept == harness("testset audit", "testset=ts", "format=json").json
    one = kept["model"]["statistics"]["kappa"]
    assert one["low"] < one["value"] < one["high"]
    assert one["queries"] == 11  # of twelve, one is of kind none, which no model judges
    assert kept["kinds"]["unanswerable"]["statistics"]["sensitivity"]["value"] is None
    assert not [one for one in made.folder.iterdir() if one.suffix == ".unfinished"]


def test_more_checked_queries_narrow_the_interval(harness, tmp_path):
    made = pooled(tmp_path, 60)
    made.judge(MODEL, grade=lambda query_id, doc_id: max(2 * (doc_id < "4"), made.truth(query_id, doc_id)))
    drawn(made, made.query_ids[:32])
    made.judge(KIM, made.query_ids[:32], needs=True, sample="audit")
    found = harness("testset audit", "testset=ts", "metric=ndcg@3", "format=json").json["worth"]
    now, more = found["now"], found["more"]
    assert more["checked"] > now["checked"] > 20
    assert all(0 < more[by] < now[by] for by in ("people", "together"))


def test_without_a_model_people_are_compared(harness, tmp_path):
    made = pooled(tmp_path, 8)
    drawn(made, made.query_ids[:3])
    made.judge(KIM, made.query_ids[:3], needs=True, sample="audit")
    done = harness("testset audit", "testset=ts")
    assert done.code == 0, done.err
    assert "No model has judged the checked queries." in done.out
    assert "No pair was judged by two people, or twice by one person, so" in done.out
    assert "ts: 3 of 3 drawn queries checked in full" in done.out
    assert "checked queries" not in done.out.replace("No model has judged the checked queries.", ""), "no second count"
    frozen = harness("testset freeze", "testset=ts", "leave_out=true")
    [row] = [line for line in frozen.out.splitlines() if line.startswith("checked by people")]
    assert row.split()[3:] == ["3", "of", "3", "drawn"]
    assert "The agreement of model and people" not in frozen.out


def test_what_is_left_to_do_is_named(harness, tmp_path):
    made = pooled(tmp_path, 8)
    made.judge(MODEL)
    drawn(made, made.query_ids[:4])
    made.judge(KIM, made.query_ids[:3], needs=True, sample="audit")
    flipped = {0: 3, 1: 2, 2: 1, 3: 0}
    made.judge(LEE, made.query_ids[:1], lambda *pair: flipped[made.truth(*pair)], needs=True, sample="audit")
    done = harness("testset audit", "testset=ts")
    assert done.code == 0, done.err
    assert "Kappa of kim and lee is low. Agree on the meaning of the grades before you blame the model." in done.out
    assert "sample=audit  # the other drawn queries" in done.out
    assert "sample=open  # 7 pairs on which people disagree or are unsure" in done.out


def without(name):
    return lambda made: (made.folder / name).unlink()


def unknown_version(made):
    (made.folder / "judge.json").write_text('{"version": 7, "judges": {}}')


def every_query_edited(made):
    path = made.folder / "queries.jsonl"
    path.write_text(path.read_text("utf-8").replace('"content": "', '"content": "저기, '))


@pytest.mark.parametrize(
    ("spoiled", "words", "message"),
    [
        (without("audit.json"), [], "testset=ts: no queries are drawn for people to check. To draw and judge "
         "queries: harness testset review testset=ts reviewer=NAME sample=audit"),
        (without("judgements.jsonl"), [], "ts/judgements.jsonl has no judgements by people for the audit"),
        (every_query_edited, [], "by people for the audit, or the judged queries have been edited since."),
        (unknown_version, [], "version is 7"),
        (None, ["metric=ndgc@3"], "'ndgc@3' is unknown. Did you mean 'ndcg@3'?"),
        (None, ["metric=ndcg@10"], "ndcg@10 reads 10 documents"),
        (None, ["metric=ndcg"], "ndcg reads whole lists, but only the first 3 of each run are pooled"),
        (None, ["metric=abstention_accuracy"], "abstention_accuracy cannot be computed for each query from judged"),
        (None, ["metric=span_recall@3"], "span_recall@3 cannot be computed for each query from judged"),
    ],
)  # fmt: skip
def test_bad_input(harness, made, spoiled, words, message):
    if spoiled:
        spoiled(made)
    done = harness("testset audit", "testset=ts", *words)
    assert done.code == 2, done.out + done.err
    assert message in done.err
    assert not (made.folder / "agreement.json").exists()


def test_too_few_checked_queries(harness, tmp_path):
    made = pooled(tmp_path, 8)
    drawn(made, made.query_ids[:3])
    made.judge(KIM, made.query_ids[:1], needs=True, sample="audit")
    made.judge(LEE, made.query_ids[1:2], needs=True, sample="audit", blind=False)
    done = harness("testset audit", "testset=ts")
    assert done.code == 2
    assert "people have checked 1 of 3 drawn queries in full, but 2 are needed. 8 judgements do not count" in done.err
