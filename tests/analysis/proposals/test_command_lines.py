"""The commands that `run` and `init` print to go on with."""

import shlex
import shutil
from pathlib import Path

import pytest

from harness.analysis.proposals.catalogue import Setup
from harness.analysis.proposals.command_lines import NextCommands, search_as
from harness.config.check import Invocation
from harness.data.scripts import Writing
from harness.experiment.plan import Plan


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


ALL = dict.fromkeys(("wrongly_returned", "wrongly_withheld", "not_found", "misranked"), 0.1)
AUTO = "harness sweep sweep=auto budget=10m"


class Config(Plan):
    """A config that has a tokenizer, without its components."""

    active = ("tokenizer",)


COMPONENTS = {"hybrid_light": ("bm25", "bigram", "dense"), "hybrid_lexical": ("bm25", "bigram")}


def proposed(*overrides, losses=ALL, needless=10, language="Korean", documents=1000, config_dir=None, **choices):
    """What is printed after a run at a depth of 100."""
    known = {"retriever": "bm25", "gate": "none", "objective": "modified_map@3"} | choices
    names = COMPONENTS.get(known["retriever"], (known["retriever"],))
    config = Config({}, {}, {name: {} for name in names}, {}, 3, 100, objective=known.pop("objective"))
    writing = Writing(language, "HANGUL" if language == "Korean" else "LATIN")
    setup = Setup(config, known, writing, documents, needless)
    return NextCommands(setup, Invocation(known, overrides, config_dir=config_dir)).commands(losses)


def only(*kinds):
    return {kind: 0.1 if kind in kinds else 0.004 for kind in ALL}


def test_the_search_of_a_run_applies_what_the_run_learned():
    words = ("retriever=hybrid_lexical", "fusion=learned", "fusion.folds=3", "gate=auto", "metrics=all", "format=json")
    rules = {"gate": Path("outputs/a b/gate.json").absolute(), "fusion": Path("/elsewhere/fusion.json")}
    [line] = search_as(Invocation({}, words, config_dir="own"), rules)
    assert shlex.split(line) == [
        "harness", "search", "--config-dir=own", "retriever=hybrid_lexical",
        "gate=fitted", "gate.file=outputs/a b/gate.json", "fusion=fitted", "fusion.file=/elsewhere/fusion.json",
    ]  # fmt: skip
    for recipe in (Invocation({}, ("experiment=mine",)), Invocation({}, (), ("experiment=mine",))):
        assert search_as(recipe, rules) == []


LIGHT = "harness run retriever=hybrid_light"
LATIN = "harness run retriever=hybrid encoder=lsa"


def test_the_commands_from_bm25_lead_to_the_automatic_sweep():
    assert proposed() == proposed(losses=None) == [LIGHT, f"{LIGHT} gate=auto", AUTO]
    assert proposed("retriever=hybrid_lexical", retriever="hybrid_lexical")[0] == LIGHT
    words = ("retriever=hybrid_light", "gate=auto")
    assert proposed(words[0], retriever="hybrid_light")[:2] == [f"{LIGHT} gate=auto", AUTO]
    assert proposed(*words, retriever="hybrid_light", gate="auto")[0] == AUTO  # nothing that the run has


def test_commands_that_would_win_nothing_back_are_left_out():
    assert proposed(losses=only("wrongly_returned")) == ["harness run gate=auto", AUTO]
    assert proposed(needless=0)[:2] == [LIGHT, AUTO]
    withheld = proposed("gate=score", gate="score", needless=0, losses=only("wrongly_withheld"))
    assert withheld[0] == "harness run gate=none"
    assert proposed(losses=only()) == [AUTO]


@pytest.mark.parametrize(
    ("words", "setup", "commands"),
    [
        # A tokenizer for the language comes first; where bigrams do not help, another mixture is proposed.
        (("dataset=beir", "tokenizer=kiwi", "tokenizer.tags=[NN]"),
         {"language": "English", "tokenizer": "kiwi", "needless": 0},
         ["harness run dataset=beir tokenizer=snowball",
          "harness run dataset=beir tokenizer=snowball retriever=hybrid encoder=lsa",
          "harness sweep dataset=beir sweep=auto budget=10m"]),
        ((), {"language": "English", "losses": only("misranked")}, [LATIN, AUTO]),
        (("retriever=dense", "encoder=x"), {"retriever": "dense", "encoder": "x", "losses": only("misranked")},
         ["harness run encoder=x retriever=hybrid_light", f"{AUTO}"]),
        # A service is not replaced.
        (("retriever=http", "retriever.http.url=x"), {"retriever": "http", "losses": only("misranked")}, []),
        # An automatic sweep cannot go by this objective.
        (("objective=abstention_f1",), {"objective": "abstention_f1", "losses": only("misranked")},
         ["harness run objective=abstention_f1 retriever=hybrid_light"]),
        # A gate by score names the ranking that it reads.
        (("gate=score", "gate.threshold=3"), {"gate": "score", "losses": only("misranked")},
         ["harness run gate=score gate.threshold=3 retriever=hybrid_light gate.source=bm25", AUTO]),
        # Deeper lists, unless they are hardly deeper: 22 documents more are not worth a run.
        ((), {"retriever": "bge_m3_sparse", "losses": only("not_found")}, [AUTO, "harness run depth=300"]),
        ((), {"retriever": "bge_m3_sparse", "losses": only("not_found"), "documents": 122}, [AUTO]),
        # Words are printed as they were typed, without those of this run alone.
        (("experiment_name=한국어 1", "run_name=x", "metrics=all"), {"losses": only("misranked")},
         ["harness run 'experiment_name=한국어 1' retriever=hybrid_light",
          "harness sweep 'experiment_name=한국어 1' sweep=auto budget=10m"]),
    ],
)  # fmt: skip
def test_the_commands_fit_the_run(words, setup, commands):
    assert proposed(*words, **setup) == commands


def test_a_config_dir_is_named_again_and_a_recipe_is_not_contradicted(tmp_path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "deep.yaml").write_text("# @package _global_\ndepth: 50\n")
    words = {"config_dir": "mine", "losses": only("not_found", "wrongly_returned")}
    deep = "harness run --config-dir=mine experiment=deep retriever=hybrid_light"
    assert proposed("experiment=deep", **words) == [deep, f"{deep} gate=auto"]  # the depth is the recipe's
    assert proposed("experiment=lexical_gated", gate="score", retriever="hybrid_lexical") == [
        "harness run experiment=lexical_gated depth=300"
    ]
    assert proposed("experiment=mine") == []


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["none", "auto"])
def test_every_printed_command_runs_on_the_sample(harness, fresh_database, tmp_path, gate):
    shutil.copyfile(fresh_database, tmp_path / "my runs.db")
    words = (f"tracking.uri=sqlite:///{tmp_path}/my runs.db", "outputs=my outputs", "experiment_name=실험 1")
    done = harness("run", *words, f"gate={gate}")
    assert done.code == 0, done.err
    lines = [line.strip() for line in done.out.splitlines() if line.startswith("  harness ")]
    assert len(lines) >= 3
    for line in lines:
        _, verb, *others = shlex.split(line, comments=True)
        slow = {"run": ["--cfg", "job"], "ui": ["--cfg", "job"], "sweep": ["dry_run=true"], "search": ["query=달"]}
        done = harness(verb, *others, *slow.get(verb, []))
        assert done.code == 0, f"{line}\n{done.err}"
