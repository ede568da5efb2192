"""Axes by hand; studies that are killed anywhere, exhausted, and used with every sampler."""

import functools
import itertools
import math

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.config.places import conf_folder
from harness.errors import BadInput
from harness.sweeps import search as sweep_search
from harness.sweeps.axes import Interval, Values, axis_of
from harness.sweeps.plan import SweepObjective
from harness.sweeps.search import Grid, Search, importlib

ONE = [SweepObjective("map", "maximize")]
TWO = [SweepObjective("map", "maximize"), SweepObjective("seconds", "minimize")]
MIXED = ["w=interval(0,1)", "t=range(0,10,0.5)", "n=tag(log,int(interval(1,100)))", "k=kiwi,char_ngram"]


pytestmark = pytest.mark.usefixtures("unsynced")


def parsed(*words):
    return OverridesParser.create().parse_overrides(list(words))


def space(*words):
    return {override.get_key_element(): axis_of(override) for override in parsed(*words)}


def given_by(words):
    """The values of a proposal's overrides, read by Hydra."""
    return {override.key_or_group: override.value() for override in parsed(*words)}


def value(words):
    """A smooth function with its best point, 0, at w=0.3, t=7, n=20, k=char_ngram; axes may be missing."""
    at = {"w": 0.3, "t": 7, "n": 20, "k": "char_ngram"} | given_by(words)
    distance = (at["w"] - 0.3) ** 2 + ((at["t"] - 7) / 10) ** 2 + (math.log(at["n"] / 20) / 5) ** 2
    return [-distance - 0.1 * (at["k"] != "char_ngram")]


@pytest.fixture
def study(tmp_path):
    """study(search, *words) -> the search's study of these axes, in a file."""

    return lambda search, *words, file="study.db", objectives=ONE: search.open(
        tmp_path / file, space(*words), objectives, "study"
    )


def searched(study, measure=value):
    """(words, values) of the points that are left of a whole search."""
    found, trials, batch = [], study._search.trials, study._search.batch
    while asked := study.ask(min(batch, trials - len(study.finished))):
        for proposal in asked:
            found.append((proposal.overrides, measure(proposal.overrides)))
            study.tell(proposal.number, found[-1][1])
    return found


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("a=interval(1,20)", Interval(1.0, 20.0, False)),
        ("a=int(interval(1,20))", Interval(1, 20, False)),
        ("a=tag(log,interval(0.01,1))", Interval(0.01, 1.0, True)),
        ("a=tag(log,int(interval(1,100)))", Interval(1, 100, True)),
        # The stop is left out, and one float makes all of them floats.
        ("a=range(0,2,0.5)", Values(("0", "0.5", "1", "1.5"), True)),
        ("a=range(3,0,-1)", Values(("3", "2", "1"), True)),
        ("a=range(0,3)", Values(("0", "1", "2"), True)),
        ("a=1,1.0,2,1_0,10,0.50,0.5,5e-1", Values(("1", "2", "10", "0.5"), False)),  # one value in several spellings
        ("a=10,30,100", Values(("10", "30", "100"), True)),
        ("a=choice(3,2,0.5)", Values(("3", "2", "0.5"), True)),
        # Neither rising nor falling, no numbers, numbers in quotes.
        ("a=1,3,2", Values(("1", "3", "2"), False)),
        ("a=null,true,false", Values(("null", "True", "False"), False)),
        ("a='1','2'", Values(("'1'", "'2'"), False)),
        ("a=kiwi,'한국, 어',kiwi", Values(("kiwi", "'한국, 어'"), False)),  # which Hydra reads again as it was
        ("+a=[1,2],[3]", Values(("[1,2]", "[3]"), False)),
        ("a=shuffle(range(0,9))", Values(tuple("012345678"), True)),
    ],
)
def test_axes_by_hand(word, expected):
    [override] = parsed(word)
    assert axis_of(override) == expected


def test_two_values_of_an_ordered_axis_are_checked_before_a_search_and_all_of_another():
    axes = space("a=1,2,9", "b=int(interval(1,5))", "c=interval(1.0,5.0)", "d=b,a,c").values()
    assert [axis.extremes for axis in axes] == [("1", "9"), ("1", "5"), ("1", "5"), ("b", "a", "c")]
    assert [axis.size for axis in axes] == [3, 5, None, 3]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("a=interval(2,1)", r"a=interval\(2\.0,1\.0\) is not an interval"),
        ("a=interval(1,1)", "is not an interval"),
        ("a=interval(0,inf)", "is not an interval"),
        ("a=interval(nan,1)", "is not an interval"),
        ("a=int(interval(5,5))", r"a=int\(interval\(5,5\)\) is not an interval"),
        ("a=tag(log,interval(0,1))", r"begins at 0\.0: a logarithmic scale"),
        ("a=tag(lgo,interval(1,2))", "has the tag lgo"),
        ("a=tag(log,range(1,9))", "has the tag log"),
        ("a=range(3,1)", r"a=range\(3,1\) has no values"),
        ("a=range(0,5,0)", "with step 0"),
        ("a=range(0,1e12)", r"has more than 100,000 values.* search=tpe"),
        ("a=range(0,1000000000000)", "has more than 100,000 values"),
        ("a=range(1,0,-1e-9)", "has more than 100,000 values"),
        ("a=shuffle(range(0,1e12))", "has more than 100,000 values"),
        ("a=range(0,inf)", "is not finite"),
        (f"a=range(0,{10**400})", "is not finite"),
    ],
)
def test_overrides_that_are_no_axes(word, message):
    with pytest.raises(BadInput, match=message):
        axis_of(parsed(word)[0])


def test_a_grid_takes_no_intervals():
    with pytest.raises(BadInput, match=r"x=interval\(1\.0,5\.0\) is an interval, and a grid needs a list of values"):
        Grid().points(None, space("x=interval(1,5)"))


def test_arguments_that_make_no_search():
    with pytest.raises(BadInput, match=r"choose one of random, tpe, cmaes, gp.* Did you mean 'tpe'"):
        Search("tp")
    for name, value in (("trials", 0), ("batch", 0), ("seed", -1)):
        with pytest.raises(BadInput, match=f"{name}={value} is too small"):
            Search("tpe", **{name: value})


def test_what_a_sampler_does_not_support(study, monkeypatch, caplog):
    with pytest.raises(BadInput, match="takes one objective"):
        study(Search("cmaes"), *MIXED, objectives=TWO)
    with pytest.raises(BadInput, match="none is swept"):
        study(Search("cmaes"), "k=a,b")
    with pytest.raises(BadInput, match="nothing to search"):
        study(Search("tpe"))
    study(Search("cmaes"), *MIXED)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["search=cmaes models only numbers: it draws k at random."]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for sampler, command in (("gp", r"pip install 'retrieval-harness\[dense\]'"), ("cmaes", "pip install cmaes")):
        with pytest.raises(BadInput, match=command):
            study(Search(sampler), "w=interval(0,1)")


def test_a_study_is_opened_again(study, tmp_path):
    name = "한글 {q}%20?.db"  # a path is no URL
    study(Search("random"), "t=range(0,10)", "k=a,b", file=name)
    study(Search("tpe", trials=9), "k=a,b", "t=range(0,10)", file=name)
    Search("random").open(tmp_path / name, space("other=1,2"), TWO, "another")
    (tmp_path / name).write_bytes(b"no study" * 1000)
    with pytest.raises(BadInput, match="file is not a database"):
        study(Search("random"), "k=a,b", file=name)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_points_are_new_lie_in_their_axes_and_read_back(tmp_path, sampler):
    axes = {
        "real": Interval(-3.5, 1e6, False), "small": Interval(1e-6, 1e-3, True), "whole": Interval(-99, 99, False),
        "logarithmic": Interval(1, 999, True), "ordered": Values(("0", "1", "2"), True),
        "texts": Values(("'ㄱ 0'", "'ㄱㄱ 1'"), False),
    }  # fmt: skip
    opened = Search(sampler, trials=12, batch=4, seed=3).open(tmp_path / "study.db", axes, ONE, "study")
    count = itertools.count()
    seen = [words for words, _ in searched(opened, lambda words: [float(next(count) % 7)])]
    for key, axis, *words in zip(axes, axes.values(), *seen, strict=True):
        for word, override in zip(words, parsed(*words), strict=True):
            name, _, text = word.partition("=")
            assert override.key_or_group == name == key
            if isinstance(axis, Values):
                assert text in axis.texts
            else:
                assert isinstance(override.value(), int | type(axis.low))
                assert axis.low <= override.value() <= axis.high
                assert str(override.value()) == text
    assert len(seen) == len(set(seen)) == 12


def test_an_interval_gives_short_words_that_stay_inside():
    assert Interval(0.0, 1.0, False).text(0.123456789) == "0.123457"
    assert Interval(1e-9, 1.0, True).text(1.23456789e-5) == "1.23457e-05"
    # Of 6 digits there would be one word for all points, or two. 100 / 0.001 is 10^5, so 5 digits more.
    assert Interval(100.0, 100.001, False).text(100.000123456789) == "100.00012346"
    assert Interval(0.12345678, 1.0, False).text(0.12345678) == "0.123457"
    assert Interval(0.0, 0.12345678, False).text(0.12345678) == "0.12345678"  # 0.123457 is not


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_a_search_killed_anywhere_resumes_with_the_same_points(study, monkeypatch, sampler):
    # A batch of 4 is 8 writes: 4 points, then their values. 9 to 12 are the points of the second batch, the first ones
    # that a model proposes, and 13 to 16 their values.
    monkeypatch.setattr(sweep_search, "STARTUP", 3)
    search = Search(sampler, trials=8, batch=4, seed=5)
    whole = [words for words, _ in searched(study(search, *MIXED))]
    for stop in (3, 10, 14):
        opened, writes = study(search, *MIXED, file=f"{stop}.db"), itertools.count(1)

        def stopping(write, *values, writes=writes, stop=stop, **named):
            if next(writes) == stop:
                raise Killed
            return write(*values, **named)

        for name in ("add_trial", "tell"):
            setattr(opened._stored, name, functools.partial(stopping, getattr(opened._stored, name)))
        with pytest.raises(Killed):
            searched(opened)
        searched(again := study(search, *MIXED, file=f"{stop}.db"))
        assert [point.overrides for point in again.finished] == whole, stop


@pytest.mark.slow
def test_the_seed_decides_and_the_order_of_the_keys_does_not(study, monkeypatch):
    monkeypatch.setattr(sweep_search, "STARTUP", 3)

    def points(name, seed, words):
        return [set(words) for words, _ in searched(study(Search("tpe", 6, 3, seed), *words, file=name))]

    assert points("a.db", 0, MIXED) == points("b.db", 0, MIXED[::-1]) != points("c.db", 1, MIXED)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_a_finite_space_is_searched_to_its_end(study, sampler):
    # 3 x 2 x 4 = 24 points, and a failed one is not tried again.
    opened = study(Search(sampler, trials=99), "t=range(0,9,3)", "k=a,b", "n=int(interval(1,4))")
    failed = ("t=3", "k=a", "n=2")
    found = searched(opened, lambda words: None if words == failed else [given_by(words)["t"]])
    every = sorted((f"t={t}", f"k={k}", f"n={n}") for t in (0, 3, 6) for k in "ab" for n in (1, 2, 3, 4))
    assert sorted(words for words, _ in found) == every
    assert len(opened.finished) == 24


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "trials", "batch"), [("tpe", 40, 10), ("cmaes", 40, 10), ("gp", 15, 5)])
def test_samplers_learn_from_the_values_of_earlier_points(study, sampler, trials, batch):
    found = searched(study(Search(sampler, trials, batch), "w=interval(0,1)", "t=interval(0,10)"))
    first, last = (sum(one for _, [one] in some) for some in (found[:batch], found[-batch:]))
    assert last > first
    assert len({words for words, _ in found}) == trials


@pytest.mark.slow
def test_several_objectives_have_their_directions(study):
    """They are at odds about w, so that any w is on their front, and agree on t=0."""

    def measured(words):
        at = given_by(words)
        return at["w"] - at["t"] / 10, at["w"] ** 2 + at["t"]

    found = searched(study(Search("tpe", 40, 10), "w=interval(0,1)", "t=range(0,10)", objectives=TWO), measured)
    late = [given_by(words)["t"] for words, _ in found[20:]]
    assert sum(late) / len(late) < 3.5  # by chance 4.5, with a standard deviation of 0.64


def test_proposals_without_values_are_proposed_again(study):
    opened = study(search := Search("tpe", seed=1), *MIXED)
    first = opened.ask(4)
    assert [proposal.number for proposal in first] == [0, 1, 2, 3]
    opened.tell(1, [0.5])
    opened.tell(2, None)
    opened.tell(0, [math.nan])  # no value to learn from
    assert len(opened.finished) == 3
    again = study(search, *MIXED)
    assert again.ask(4) == first[3:]
    with pytest.raises(ValueError, match="COMPLETE"):
        again.tell(1, [0.5])
    with pytest.raises(ValueError, match="did not match the number of the objectives"):
        again.tell(3, [0.5, 1.0])
    again.tell(3, [0.5])
    assert [proposal.number for proposal in again.ask(2)] == [4, 5]


def test_a_sampler_that_repeats_itself_makes_way_for_points_at_random(study, monkeypatch):
    from optuna.samplers import RandomSampler

    monkeypatch.setattr(Search, "new_sampler", lambda self, *_: RandomSampler(seed=1))
    for word, size in (("t=range(0,7)", 7), ("w=interval(0,1)", 8)):
        proposals = study(Search("random"), word, file=f"{size}.db").ask(8)
        assert len({proposal.overrides for proposal in proposals}) == size


def test_points_that_are_left_are_equally_likely(study):
    opened = study(Search("random"), "t=range(0,3)", "k=a,b", "n=int(interval(4,5))")
    tried = {("t=0", "k=a", "n=4"), ("t=2", "k=b", "n=5"), ("t=1", "k=b", "n=4")}
    drawn = [opened._overrides(opened._untried(tried, seed)) for seed in range(900)]
    counts = {words: drawn.count(words) for words in drawn}
    assert len(counts) == 12 - 3
    assert not tried & set(counts)
    assert min(counts.values()) > 60  # 100 each, with a standard deviation of 9.4


def test_a_shipped_search_is_named_after_its_sampler_and_has_the_seed_of_the_sweep():
    for path in (conf_folder() / "search").glob("*.yaml"):
        node = yaml.safe_load(path.read_text("utf-8"))
        assert (node.get("sampler", path.stem), node.get("seed", "${seed}")) == (path.stem, "${seed}")
