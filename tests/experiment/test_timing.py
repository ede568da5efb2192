"""Times of queries: warm, of a bounded sample, without the caches, and those of this machine alone."""

import pytest

from harness.experiment import timing
from harness.experiment.cached_parts import Caching
from harness.experiment.timing import LEAST, MOST, SECONDS, Timing, timed_part
from harness.storage.cache import Cache
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Word

LEXICAL = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json")
OBJECTIVES = "objectives=[modified_map@3,ms_per_query]"


@pytest.fixture
def clock(monkeypatch):
    """The time that `perf_counter` tells: a list of one number, which work moves on."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return now


def working(clock, seconds, cold=0.0):
    """Work of so many seconds a query, after `cold` seconds at first; and the samples that it was given."""
    samples = []

    def work(rows):
        samples.append(list(rows))
        clock[0] += seconds * len(rows) + (cold if len(samples) == 1 else 0)
        return len(rows)

    return work, samples


def test_loading_is_not_timed_and_quick_work_is_timed_on_all_queries(clock):
    work, samples = working(clock, 0.0001, cold=10.0)
    assert timed_part(work, 220) == Timing(*[pytest.approx(0.1)] * 3)
    assert samples[-LEAST:] == [list(range(220))] * LEAST
    assert len([sample for sample in samples if len(sample) == 220]) <= MOST
    assert clock[0] < 10 + SECONDS


def test_slow_work_is_timed_on_few_queries(clock):
    work, samples = working(clock, 2.0)
    assert timed_part(work, 200).median == pytest.approx(2000)
    assert samples == [[0]] * (1 + LEAST)
    work, samples = working(clock, 0.02)
    timed_part(work, 100)
    assert samples[-1] == [0, 6, 12, 18, 25, 31, 37, 43, 50, 56, 62, 68, 75, 81, 87, 93]


def test_the_spread_is_that_of_the_passes(clock):
    took = iter([5.0, 0.4, 0.1, 0.2])

    def work(rows):
        clock[0] += next(took)
        return 2  # pairs of a query, say

    assert timed_part(work, 1) == Timing(*map(pytest.approx, (100, 50, 200)))


def test_timing_bypasses_cached_tokens(tmp_path):
    made = []

    class Counted(Word):
        def __call__(self, texts, progress=None):
            made.append(texts)
            return super().__call__(texts, progress)

    wrap = Caching(Cache(tmp_path), "corpus", print)
    tokenizer = wrap("tokenizer", {"_target_": "retrievers.lexical.tokenize.Word"}, Counted)
    for count in (1, 1):
        assert tokenizer(["달 물"]).lists() == [["달", "물"]]
        assert len(made) == count
    with wrap.bypassed():
        assert tokenizer(["달 물"]).lists() == [["달", "물"]]
    tokenizer(["달 물"])
    assert len(made) == 2


def test_a_tokenizer_with_a_model_counts_as_loaded_once_it_has_read_a_text(tmp_path):
    class Loading(Word):
        loads_model = True

    def opened():
        wrap = Caching(Cache(tmp_path), "corpus", print)
        return wrap, wrap("tokenizer", {"_target_": "retrievers.lexical.tokenize.Kiwi"}, Loading)

    wrap, tokenizer = opened()
    assert not wrap.loaded
    tokenizer(["달 물"])
    assert wrap.loaded
    wrap, tokenizer = opened()
    tokenizer(["달 물"])  # from the cache
    assert not wrap.loaded


@pytest.fixture
def searched(monkeypatch, own_cache):
    """An empty cache, and the numbers of queries that BM25 is asked for."""
    asked, search = [], BM25.search

    def noted(self, queries, k):
        asked.append(len(queries))
        return search(self, queries, k)

    monkeypatch.setattr(BM25, "search", noted)
    return asked


@pytest.mark.slow
def test_another_machine_has_times_of_its_own(harness, toy, searched, monkeypatch, tracker):
    """Its ranking comes from the shared cache without a time, until a sweep has the time as an objective."""
    first = harness("run", *LEXICAL).json
    assert set(first["measured"]) == {
        f"ms_per_query{end}{part}" for end in ("", "_low", "_high") for part in ("", "/bm25")
    }
    assert "core" in timing.machine()
    assert tracker.run(first["run_id"]).tags["machine"] == timing.machine()
    searched.clear()
    assert harness("run", *LEXICAL).json["measured"] == first["measured"]
    sweep = ("sweep", *LEXICAL, "top_k=1,3")
    assert harness(*sweep, OBJECTIVES).code == 0
    assert "skipping 2 trials" in harness(*sweep, OBJECTIVES).err
    monkeypatch.setattr(timing, "machine", lambda: "another")
    there = harness("run", *LEXICAL).json
    assert there["measured"] == {}
    assert tracker.run(there["run_id"]).tags["machine"] == "another"
    other = ("sweep", *LEXICAL, "top_k=1,3,2")
    assert harness(*other).code == 0
    assert searched == []
    done = harness(*other, OBJECTIVES)
    assert "skipping" not in done.err, "trials of the first machine are repeated"
    assert done.json["best"]["objectives"]["ms_per_query"] > 0
    assert searched
    searched.clear()
    assert "ms_per_query" in harness("run", *LEXICAL).json["measured"]
    assert searched == []
