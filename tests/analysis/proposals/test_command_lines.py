"""The commands that `run` and `init` print to go on with."""

import json
import shlex
import shutil

import pytest

from harness.analysis.proposals.catalogue import Setup
from harness.analysis.proposals.command_lines import NextCommands
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


def test_the_commands_from_bm25_lead_to_the_automatic_sweep():
    light = "harness run retriever=hybrid_light"
    assert proposed() == proposed(losses=None) == [light, f"{light} gate=auto", AUTO]
    assert proposed("retriever=hybrid_lexical", retriever="hybrid_lexical")[0] == light
    words = ("retriever=hybrid_light", "gate=auto")
    assert proposed(words[0], retriever="hybrid_light")[:2] == [f"{light} gate=auto", AUTO]
    assert proposed(*words, retriever="hybrid_light", gate="auto")[0] == AUTO  # nothing that the run has


def test_commands_that_would_win_nothing_back_are_left_out():
    assert proposed(losses=only("wrongly_returned")) == ["harness run gate=auto", AUTO]
    assert proposed(needless=0)[:2] == ["harness run retriever=hybrid_light", AUTO]
    assert (
        proposed("gate=score", gate="score", needless=0, losses=only("wrongly_withheld"))[0] == "harness run gate=none"
    )
    assert proposed(losses=only()) == [AUTO]


def test_a_tokenizer_for_the_language_comes_first():
    first = "harness run dataset=beir tokenizer=snowball"
    given = ("dataset=beir", "tokenizer=kiwi", "tokenizer.tags=[NN]")
    assert proposed(*given, language="English", tokenizer="kiwi", needless=0) == [
        first, f"{first} retriever=hybrid encoder=lsa", "harness sweep dataset=beir sweep=auto budget=10m",
    ]  # fmt: skip


def test_where_bigrams_do_not_help_another_mixture_is_proposed():
    assert proposed(language="English")[0] == "harness run retriever=hybrid encoder=lsa"
    assert proposed("retriever=dense", "encoder=x", retriever="dense", encoder="x")[0] == (
        "harness run encoder=x retriever=hybrid_light"
    )


def test_services_are_not_replaced():
    asked = ("retriever=http", "retriever.http.url=x")
    assert proposed(*asked, retriever="http", losses=only("misranked")) == []


def test_an_objective_that_the_automatic_sweep_cannot_go_by_leaves_it_out():
    assert proposed("objective=abstention_f1", objective="abstention_f1", losses=only("misranked")) == [
        "harness run objective=abstention_f1 retriever=hybrid_light"
    ]


def test_a_gate_by_score_names_the_ranking_that_it_reads():
    assert proposed("gate=score", "gate.threshold=3", gate="score", losses=only("misranked"))[0] == (
        "harness run gate=score gate.threshold=3 retriever=hybrid_light gate.source=bm25"
    )


def test_lists_get_deeper_where_that_is_worth_it():
    dense = {"retriever": "bge_m3_sparse", "losses": only("not_found")}
    assert proposed(**dense) == [AUTO, "harness run depth=300"]
    assert proposed(**dense, documents=122) == [AUTO]  # 22 documents more are not worth a run


def test_a_config_dir_is_named_again_and_a_recipe_is_not_contradicted(tmp_path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "deep.yaml").write_text("# @package _global_\ndepth: 50\n")
    words = {"config_dir": "mine", "losses": only("not_found", "wrongly_returned")}
    assert proposed("experiment=deep", **words) == [
        "harness run --config-dir=mine experiment=deep retriever=hybrid_light",
        "harness run --config-dir=mine experiment=deep retriever=hybrid_light gate=auto",
    ]  # the recipe sets the depth, and no automatic sweep takes one
    assert proposed("experiment=lexical_gated", gate="score", retriever="hybrid_lexical") == [
        "harness run experiment=lexical_gated depth=300"
    ]
    assert proposed("experiment=mine") == []


def test_words_are_printed_as_they_were_typed_and_words_of_one_run_are_not():
    assert proposed("experiment_name=한국어 1", "run_name=x", "metrics=all", losses=only("misranked"))[0] == (
        "harness run 'experiment_name=한국어 1' retriever=hybrid_light"
    )


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
        slow = {"run": ["--cfg", "job"], "ui": ["--cfg", "job"], "sweep": ["dry_run=true"]}
        done = harness(verb, *others, *slow.get(verb, []))
        assert done.code == 0, f"{line}\n{done.err}"


def test_the_export_of_a_run_elsewhere_is_found(harness, toy, tmp_path):
    words = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "outputs=my outputs", "experiment_name=e 1")
    done = harness("run", *words)
    [line] = [line for line in done.out.splitlines() if "harness export" in line]
    done = harness(*shlex.split(line)[1:], "format=json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["queries"] == 3
