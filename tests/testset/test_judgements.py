"""The log of judgements: nothing acknowledged is lost, nothing torn is read, and the last word of each judge holds."""

import gzip
import json
import multiprocessing
from dataclasses import replace

import pytest
from documents_folders import lines
from hypothesis import given
from hypothesis import strategies as st

from harness.testset.judgements import Judgement, JudgementLog, Place, by_pair, current, text_digest
from retrievers.base import BadInput, Query, Turn

MOON, SEA = Query.of("q1", "달은 왜 둥글어?"), Query.of("q2", "바다")
AT = "2026-11-22T09:30:00Z"
ONE = Judgement("q1", text_digest(MOON), "d1", 2, "human:kim", AT)
ROW = {"query": "q1", "text": ONE.text, "doc": "d1", "grade": 2, "by": "human:kim", "at": AT}

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
judgements = st.builds(
    Judgement,
    query_id=words,
    text=words,
    doc_id=st.none() | words,
    grade=st.none() | st.integers(0, 3),
    by=st.tuples(st.sampled_from(["human", "llm", "adjudicated"]), words).map(":".join),
    at=words,
    needs=st.none() | st.booleans(),
    round=st.sampled_from([1, 2]),
    sample=st.sampled_from(["audit", "repair", "all", ""]),
    pi=st.floats(0, 1, exclude_min=True),
    blind=st.booleans(),
    quote=st.text(st.characters(exclude_categories=["Cs"])),
    withdrawn=st.booleans(),
)


@pytest.fixture
def log(tmp_path):
    return JudgementLog(tmp_path)


def test_what_is_appended_is_read(tmp_path_factory):
    @given(st.lists(st.lists(judgements, max_size=3), max_size=3))
    def check(batches):
        log = JudgementLog(tmp_path_factory.mktemp("log"))
        for batch in batches:
            log.append(batch)
        assert log.read() == [one for batch in batches for one in batch]

    check()


def test_a_torn_line_is_neither_read_nor_continued(tmp_path_factory):
    """A process may be killed after any byte: what was acknowledged before stays, and the next one is whole."""
    said = [replace(ONE, doc_id=f"문서 {n}", quote="달은 둥글다.") for n in range(3)]
    whole = JudgementLog(tmp_path_factory.mktemp("whole"))
    whole.append(said)
    written = whole.path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(written) if byte == ord("\n")]

    @given(st.integers(0, len(written)))
    def check(cut):
        log = JudgementLog(tmp_path_factory.mktemp("torn"))
        log.path.write_bytes(written[:cut])
        complete = sum(end - 1 <= cut for end in ends)  # a line that lacks nothing but its end counts
        assert log.read() == said[:complete]
        log.append([ONE])
        assert log.read() == [*said[:complete], ONE]

    check()


def test_a_long_torn_line_is_cut(log):
    log.append([ONE])
    with log.path.open("ab") as file:
        file.write(b'{"query": "q1", "quote": "' + b"x" * 200_000)
    log.append([replace(ONE, grade=0)])
    assert [one.grade for one in log.read()] == [2, 0]


def test_a_broken_line_in_the_middle_is_refused(log):
    log.path.write_bytes(b'{"query": "q1", "te\n' + lines([ROW]).encode())
    with pytest.raises(BadInput, match=r"judgements\.jsonl:1: broken JSON"):
        log.read()


def test_a_packed_log_is_read_and_not_added_to(log):
    log.path.write_bytes(gzip.compress(lines([ROW]).encode()))
    assert log.read() == [ONE]
    with pytest.raises(BadInput, match="is packed"):
        log.append([ONE])


def test_what_is_no_file_is_refused(log):
    log.path.symlink_to(log.path)
    for use in (log.read, lambda: log.append([ONE])):
        with pytest.raises(BadInput, match=r"judgements\.jsonl"):
            use()


def _append(folder, name):
    log = JudgementLog(folder)
    for n in range(40):
        log.append([replace(ONE, by=f"human:{name}", doc_id=f"d{n}", quote="x" * 3000), replace(ONE, by=f"llm:{name}")])


def test_processes_that_append_at_once_lose_nothing(log, tmp_path):
    workers = [multiprocessing.get_context("fork").Process(target=_append, args=(tmp_path, name)) for name in "abc"]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    read = log.read()
    assert len(read) == 3 * 40 * 2
    for name in "abc":  # each in its own order
        assert [one.doc_id for one in read if one.by == f"human:{name}"] == [f"d{n}" for n in range(40)]


def test_nothing_is_written_for_no_judgements(log):
    log.append([])
    assert log.read() == []
    assert not log.path.exists()


def test_the_last_word_of_each_judge_holds():
    lee, model = replace(ONE, by="human:lee", grade=0), replace(ONE, by="llm:m#01", grade=3)
    second = replace(ONE, round=2, grade=1)
    changed = replace(ONE, grade=3)
    back = replace(lee, withdrawn=True)
    said = [ONE, lee, model, second, changed, back]
    assert current(said, {"q1": MOON}) == [model, second, changed]
    assert by_pair(current(said, {"q1": MOON})) == {("q1", "d1"): [model, second, changed]}
    assert current([*said, lee], {"q1": MOON})[-1] == lee  # taken back, and said again


def test_a_judgement_holds_for_the_text_that_was_judged():
    asked = Query("q1", (*MOON.turns, Turn("assistant", "돌아서."), Turn("user", "왜?")))
    assert current([ONE], {"q1": asked}) == []
    assert current([ONE], {"q2": SEA}) == []
    assert text_digest(Query.of("other", "달은 왜 둥글어?")) == ONE.text  # whatever the id is


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"doc": ""}, "doc is '', but an id must be"),
        ({"query": None}, "query is None, but an id must be"),
        ({"grade": 7}, "grade is 7, but must be 0, 1, 2, 3 or null"),
        ({"grade": True}, "grade is True"),
        ({"grade": "2"}, "grade is '2'"),
        ({"needs": 1}, "needs is 1, but must be true, false or null"),
        ({"by": "kim"}, "by is 'kim', but must be human:NAME"),
        ({"by": "human:"}, "by is 'human:'"),
        ({"sample": "audits"}, "sample is 'audits'"),
        ({"round": 3}, "round is 3, but must be 1 or 2"),
        ({"pi": 0}, "pi is 0, but a probability"),
        ({"pi": 1.5}, "pi is 1.5"),
        ({"at": 3}, "at is 3, but must be text"),
        ({"blind": "yes"}, "blind is 'yes', but must be true or false"),
        ({"withdrawn": 1}, "withdrawn is 1, but must be true or false"),
    ],
)
def test_a_wrong_row_is_refused(log, change, message):
    log.path.write_text(lines([ROW, ROW | change]))
    with pytest.raises(BadInput) as refused:
        log.read()
    assert f"{log.path}:2: {message}" in str(refused.value)


@pytest.mark.parametrize("key", ["query", "text", "doc", "grade", "by", "at"])
def test_a_missing_field_is_named(log, key):
    log.path.write_text(json.dumps({name: value for name, value in ROW.items() if name != key}))
    with pytest.raises(BadInput, match=f"{key} is missing"):
        log.read()


def test_a_log_that_grows_is_followed_line_by_line(log):
    """Whoever follows it sees each judgement once, and nothing of a line that is not finished."""
    assert log.since(Place()) == ([], Place())
    log.append([ONE])
    found, place = log.since(Place())
    assert (found, place.lines) == ([ONE], 1)
    with log.path.open("ab") as file:
        file.write(b'{"query": "torn')
    assert log.since(place) == ([], place)
    two = replace(ONE, doc_id="d2")
    log.append([two, replace(two, withdrawn=True)])
    found, place = log.since(place)
    assert (found, place.lines) == ([two, replace(two, withdrawn=True)], 3)
    with log.path.open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(BadInput, match=r"judgements.jsonl:4: a JSON array"):
        log.since(place)
    log.path.write_bytes(b"")
    with pytest.raises(BadInput, match="was shortened"):
        log.since(place)
