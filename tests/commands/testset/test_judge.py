"""`harness testset judge` with a scripted model: what becomes of each reply, what is paid, and what is refused."""

import functools
import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from chat_server import ChatServer
from documents_folders import documents_folder
from judged_sets import RUNS, copied_set, judged_set
from scripted_judge import asked_for, gullible, judge, reply

from harness.config.commands import JudgeConfig
from harness.config.schema import keys
from harness.testset.judge.judge_record import read_records
from harness.testset.judge.judgements import JudgementLog, current
from harness.testset.pool import pool as pools

TOPICS = 8  # of which one needs no retrieval, and six have a document with evidence
SEEDS = 6
CONTROLS = 3 * SEEDS - SEEDS  # requests besides those for pairs, as seeds are pairs


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    judged_set(folder, TOPICS).pool()
    return folder


@pytest.fixture
def made(template, tmp_path):
    """A pooled test set without judgements, in the working folder."""
    made = copied_set(template, tmp_path)
    assert sum(made.kinds[one] not in ("none", "unanswerable") for one in made.queries) == SEEDS
    return made


@pytest.fixture
def judging(asking, made):
    """Call the command against a server: judging(server, "limit=3") -> Done."""
    return functools.partial(asking, "judge")


@pytest.fixture
def model():
    with ChatServer(model=judge, counted=True) as server:
        yield server


def pairs(made):
    """(query, doc) of the pairs that a model judges."""
    pool = pools.read_pool(made.folder).pairs
    return [(one.query_id, one.doc_id) for one in pool if made.kinds[one.query_id] != "none"]


def written(made):
    return {path.name: path.read_bytes() for path in made.folder.iterdir()}


def test_every_pair_is_judged_once_and_in_order(judging, made, model):
    found = judging(model, "format=json").json
    said = JudgementLog(made.folder).read()
    assert [one.pair for one in said] == pairs(made)
    assert {one.pair: one.grade for one in said} == {pair: made.truth(*pair) for pair in pairs(made)}
    assert all(one.blind and one.sample == "" and one.round == 1 and one.pi == 1 for one in said)
    assert {one.by for one in said} == {found["by"]}
    assert re.fullmatch(r"llm:tiny#[0-9a-f]{8}", found["by"])
    assert all("첫 항해는 19" in one.quote for one in said if one.grade == 3)
    assert current(said, made.queries) == said
    assert len(model.asked) == len(set(model.texts)) == len(said) + CONTROLS
    counts = Counter(str(one.grade) for one in said)
    assert found["judge"]["grades"] == {grade: counts[grade] for grade in ("0", "1", "2", "3", "null")}
    assert {kind: sum(counts.values()) for kind, counts in found["kinds"].items()} == Counter(
        made.kinds[query_id] for query_id, _ in pairs(made)
    )
    assert found["judge"]["seeds"]["count"] == found["judge"]["seeds"]["of"] == SEEDS
    rates = {kind: (one["count"], one["of"]) for kind, one in found["judge"]["controls"].items()}
    assert rates == {"seed": (SEEDS, SEEDS), "stuffed": (0, SEEDS), "claiming": (0, SEEDS)}
    assert found["judge"]["warnings"] == found["answered"] == []
    assert found["usage"]["requests"] == found["judge"]["usage"]["requests"] == len(model.asked)
    assert read_records(made.folder)[found["by"]].judged == len(said)


def test_a_finished_command_asks_nothing_and_changes_no_byte(judging, made, model):
    judging(model, "limit=7", "judge.controls=2")
    assert len(JudgementLog(made.folder).read()) == 7
    done = judging(model, "judge.controls=2")
    assert f"{len(pairs(made)) - 7} judgements added by llm:tiny#" in done.out
    before, asked = written(made), len(model.asked)
    done = judging(model, "judge.controls=2")
    assert (done.code, len(model.asked)) == (0, asked)
    assert written(made) == before
    assert "  harness testset review testset=ts reviewer=NAME\n" in done.out
    assert len(JudgementLog(made.folder).read()) == len(pairs(made))
    judging(model, "judge.controls=0")  # what is known of the judge is kept
    assert written(made) == before


def test_a_second_model_judges_only_what_none_has_judged(judging, made, model):
    judging(model, "limit=10")
    asked = len(model.asked)
    done = judging(model, "model=second", "format=json").json
    said = JudgementLog(made.folder).read()
    assert sorted(one.pair for one in said) == pairs(made)
    assert Counter(one.judge.partition("#")[0] for one in said) == {"tiny": 10, "second": done["added"]}
    assert done["by_others"] == 10
    # Each judge has its own controls: one of the seeds is among the ten pairs.
    assert len(model.asked) - asked == len(pairs(made)) - 10 + CONTROLS + 1
    assert set(read_records(made.folder)) == {one.by for one in said}
    asked, before = len(model.asked), written(made)
    done = judging(model, "model=third")
    assert f"other models have judged all {len(pairs(made))} pooled pairs. Nothing was asked." in done.out
    assert (len(model.asked), written(made)) == (asked, before)


def test_queries_that_need_no_retrieval_are_left_to_people(judging, made, model):
    pool = pools.read_pool(made.folder)
    none = [one for one in pool.pairs if made.kinds[one.query_id] == "none"]
    assert none
    pools.write_pool(made.folder, replace(pool, pairs=tuple(none)))
    done = judging(model)
    assert "ts: nothing is pooled for the queries that need retrieval. Nothing was asked." in done.out
    assert not model.asked
    assert not (made.folder / "judge.json").exists()


def test_judgements_that_are_lost_are_made_again_from_cached_replies(judging, made, model):
    def judgements():
        return [replace(one, at="") for one in JudgementLog(made.folder).read()]

    judging(model)
    path, found, asked = JudgementLog(made.folder).path, judgements(), len(model.asked)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])  # by a process that was killed while it wrote
    assert judging(model).code == 0
    assert (judgements(), len(model.asked)) == (found, asked)


def test_open_grades_and_answers_to_unanswerable_queries_are_told(judging, made):
    odd = {0: "grade 2", 1: reply(2, "글에 없는 말"), 2: reply(3), 3: reply(2, "작은 배")}  # of introductions

    def scripted(asked, count):
        one = asked_for(asked)
        first = re.match(r"가람([0-3])호는", one.document)
        return odd[int(first[1])] if first and first[0][:4] in one.conversation + one.query else judge(asked)

    with ChatServer(model=scripted) as server:
        found = judging(server, "judge.controls=0", "format=json").json
    said = {one.pair: one.grade for one in JudgementLog(made.folder).read()}
    assert [said[made.query_ids[topic], made.doc_ids[topic][0]] for topic in odd] == [None, None, None, 2]
    assert found["open"] == {"no usable reply": 1, "quotation not verbatim": 1, "no quotation": 1}
    assert (found["judge"]["grades"]["null"], found["answered"]) == (3, ["q00003"])


def test_a_judge_that_is_fooled_is_named_and_judges_what_people_have_judged(judging, made):
    made.judge("human:kim", queries=made.query_ids[:3], sample="audit")
    with ChatServer(model=gullible) as server:
        done = judging(server)
    assert "Warning: The judge is fooled. Among unrelated documents that claim to answer perfectly, " in done.out
    record = next(iter(read_records(made.folder).values()))
    assert (record.controls["claiming"].count, record.controls["stuffed"].count) == (SEEDS, 0)
    assert len(record.warnings) == 1
    said = [one for one in JudgementLog(made.folder).read() if one.basis == "llm"]
    assert sorted(one.pair for one in said) == pairs(made)
    assert not any("완벽" in one.quote for one in said), "controls are no judgements"


def test_nothing_tells_the_model_who_retrieved_a_document(judging, made, model):
    """Prompts of pairs differ in query and document alone, and controls look like all others."""
    judging(model)
    frames = Counter()
    for asked in model.asked:
        text, one = asked.text, asked_for(asked)
        assert not any(said in json.dumps(asked.body) for said in (*RUNS, *RUNS.values(), *made.query_ids))
        for part in filter(None, (one.document, one.query, one.conversation, one.note)):
            text = text.replace(part, "…")
        frames[text] += 1
    assert len(frames) == 2  # with and without a conversation
    assert len({json.dumps({**one.body, "messages": 0}) for one in model.asked}) == 1


def test_a_limit_is_said_before_anything_is_asked_and_how_to_lift_it(judging, made, model):
    assert keys(JudgeConfig)["limit"].default == 200, "nobody pays for thousands of requests by a first command"
    left = len(pairs(made)) - 7
    some = f"Judging 7 of {left + 7} pairs (limit=null: all)"
    assert f"{some} takes 7 requests" in judging(model, "limit=7", "judge.controls=0", "dry_run=true").out
    done = judging(model, "limit=7", "judge.controls=0")
    assert f"{some}: 7 requests" in done.err
    assert f"{left} more pairs to judge. Repeat the command, or set limit=null for all pairs." in done.out
    assert f"Judging {left} pairs: " in judging(model, "limit=null", "judge.controls=0").err


def test_the_prompt_is_in_the_language_of_the_documents_or_the_users_own(judging, model, tmp_path):
    (tmp_path / "mine.txt").write_text("{conversation}\n\nQ: {query}\n\n{document}")
    for word, begins in {"language=en": "You assess a search system.", "prompt=mine.txt": "Q: 가람0호는"}.items():
        shown = judging(model, word, "limit=1", "dry_run=true", "format=json").json["prompt"]
        assert shown.startswith(begins)
    judging(model, "prompt=mine.txt", "limit=1", "judge.controls=0")
    assert next(iter(read_records(tmp_path / "ts").values())).language == ""


def spoil(folder, name, old, new):
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def other_documents(folder):
    documents_folder(folder / "other", {"a.txt": "다른 글이다."}, lambda text: [(0, len(text))])


@pytest.mark.parametrize(
    ("words", "harm", "message"),
    [
        (["model=null"], None, "model is missing. Name the language model that judges"),
        (["testset=nowhere"], None, "testset=nowhere: there is no such folder"),
        ([], lambda ts: (ts / "pool.json").unlink(), "has no pool.json: nothing is pooled"),
        (["documents=other"], lambda ts: other_documents(ts.parent), "not pooled from the documents in other"),
        ([], lambda ts: spoil(ts, "queries.jsonl", "가람1호 첫", "가람1호의 첫"), r"1 query \(q00001\) has changed"),
        ([], lambda ts: spoil(ts, "queries.jsonl", '"q00001"', '"q9"'), r"1 query \(q9\) has been added"),
        ([], lambda ts: spoil(ts, "queries.jsonl", (ts / "queries.jsonl").read_text().partition("\n")[0] + "\n", ""),
         r"1 query \(q00000\) has been taken out"),
        ([], lambda ts: spoil(ts, "pool.jsonl", '"doc_id": "', '"doc_id": "f'), "lacks 1 pooled document: "),
        (["prompt=bare.txt"], None, r"prompt=bare.txt: the prompt lacks \{query\}"),
        (["prompt=last.txt"], None, r"prompt has no \{conversation\}, but 2 queries \(q00002, q00007\)"),
    ],
)  # fmt: skip
def test_what_is_refused(judging, made, model, tmp_path, words, harm, message):
    (tmp_path / "bare.txt").write_text("{document}")
    (tmp_path / "last.txt").write_text("{query} {document}")
    if harm:
        harm(made.folder)
    before = {name: one for name, one in written(made).items() if not name.startswith(".")}
    done = judging(model, *words)
    assert done.code == 2, done.out + done.err
    assert re.search(message, done.err), done.err
    assert not model.asked
    assert {name: one for name, one in written(made).items() if not name.startswith(".")} == before
