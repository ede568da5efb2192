"""The commands that are printed to go on with."""

import json
import shlex
import shutil

import pytest

from harness.config.check import Invocation
from harness.reports import next_steps
from harness.reports.next_steps import Place, Proposals


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", "cache")
    monkeypatch.setattr(next_steps.importlib.util, "find_spec", lambda name: None)


def place(task="retrieval", **changes):
    config = {"outputs": "outputs", "experiment_name": task, "tracking": {"uri": None}, "store": {"path": "cache"}}
    return Place(config | changes, {"task": task})


def test_what_a_command_finds_by_itself_is_not_repeated():
    assert place().command("ui") == "harness ui"
    assert place().command("export", "run=a1") == "harness export run=a1"
    assert place("corrections").command("compare") == "harness compare task=corrections"


def test_what_was_given_is_carried_and_quoted():
    given = place(
        outputs="my outputs",
        experiment_name="한국어 실험",
        tracking={"uri": "http://127.0.0.1:5001"},
        store={"path": "elsewhere"},
    )
    assert shlex.split(given.command("export", "run=a1")) == [
        "harness", "export", "outputs=my outputs", "tracking.uri=http://127.0.0.1:5001",
        "experiment_name=한국어 실험", "store.path=elsewhere", "run=a1",
    ]  # fmt: skip
    assert "store.path" not in given.command("ui")  # it has no such key
    assert shlex.split(given.command("export record", "public=SCORE"))[3:] == [
        "outputs=my outputs", "tracking.uri=http://127.0.0.1:5001", "public=SCORE",
    ]  # fmt: skip


def test_the_page_of_another_task_needs_its_experiment():
    assert place("corrections").command("ui") == "harness ui experiment_name=corrections"


def test_harness_yaml_need_not_be_repeated(tmp_path):
    (tmp_path / "harness.yaml").write_text("experiment_name: first\noutputs: mine\n")
    first = {"experiment_name": "first", "outputs": "mine"}
    assert place(**first).command("ui") == "harness ui"
    assert place(**first | {"experiment_name": "other"}).command("ui") == "harness ui experiment_name=other"
    assert place(**first | {"experiment_name": "retrieval"}).command("ui") == "harness ui experiment_name=retrieval"


def test_the_environment_and_passwords_are_not_printed(monkeypatch):
    secret = {"tracking": {"uri": "http://me:secret@127.0.0.1:5001"}}
    assert place(**secret).command("ui") == "harness ui"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5001")
    assert place(tracking={"uri": "http://127.0.0.1:5001"}).command("ui") == "harness ui"


NONE = dict.fromkeys(next_steps.LOST, 0.0)


def proposed(kind, *overrides, needless=10, retrievers=("bm25",), documents=1000, config_dir=None, **choices):
    invocation = Invocation({"gate": "none", "rerank": "none"} | choices, overrides, config_dir=config_dir)
    head, *lines = list(Proposals(invocation, retrievers, 100, documents).lines(NONE | {kind: 0.2}, needless)) or [""]
    assert next_steps.LOST[kind] in head or not lines
    return [line.strip() for line in lines]


def test_misranked_documents_ask_for_another_ranking_or_a_reranker(monkeypatch):
    assert proposed("misranked", "top_k=5") == ["harness run top_k=5 retriever=hybrid_lexical"]
    assert proposed("misranked", "gate=score", "gate.threshold=3", gate="score") == [
        "harness run gate=score gate.threshold=3 gate.source=bm25 retriever=hybrid_lexical"
    ]
    given = {"retrievers": ("bm25", "bigram"), "retriever": "hybrid_lexical"}
    assert proposed("misranked", "retriever=hybrid_lexical", **given) == [
        "harness run retriever=hybrid_light",
        "harness sweep retriever=hybrid_lexical fusion.weights.bm25=0.3,0.5,1,2,3",
    ]
    assert not any("fusion.weights" in one for one in proposed("misranked", fusion="learned", **given))
    monkeypatch.setattr(next_steps.importlib.util, "find_spec", lambda name: "there")
    assert "harness run rerank=cross_encoder  # reads a model of 2 GB" in proposed("misranked")
    assert "rerank" not in str(proposed("misranked", rerank="cross_encoder"))


def test_documents_that_are_not_found_ask_for_tokens_and_depth():
    assert proposed("not_found", "tokenizer=word", "tokenizer.x=1", "depth=100") == [
        "harness sweep depth=100 tokenizer=kiwi,char_ngram,word",
        "harness run tokenizer=word tokenizer.x=1 depth=300",
    ]
    assert proposed("not_found", retrievers=("dense",)) == ["harness run depth=300"]


@pytest.mark.parametrize(
    ("own", "tried"),
    [
        ("kiwi", "kiwi,char_ngram,word"),
        ("word", "word,kiwi,char_ngram"),
        ("whitespace", "whitespace,kiwi,char_ngram,word"),
        ("snowball", "snowball,char_ngram,word"),
    ],
)
def test_the_tokenizer_of_the_run_is_among_those_to_try(own, tried):
    assert proposed("not_found", tokenizer=own)[0] == f"harness sweep tokenizer={tried}"


def test_no_list_can_be_deeper_than_the_corpus():
    assert proposed("not_found", retrievers=("dense",), documents=120) == ["harness run depth=120"]
    assert proposed("not_found", retrievers=("dense",), documents=100) == []


def test_a_config_dir_is_named_again(tmp_path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "deep.yaml").write_text("# @package _global_\ndepth: 50\n")
    assert proposed("wrongly_returned", "experiment=deep", config_dir="mine") == [
        "harness run --config-dir=mine experiment=deep gate=auto"
    ]
    assert proposed("not_found", "experiment=deep", retrievers=("dense",), config_dir="mine") == []  # it sets depth
    there = Place(place().config, {}, "my conf")
    assert there.command("export", "run=a1") == "harness export '--config-dir=my conf' run=a1"


def test_commands_go_by_the_measure_that_they_are_given(tmp_path):
    assert place().command("export", "run=a1") == "harness export run=a1"
    assert place().command("compare", metric="ndcg@10") == "harness compare metric=ndcg@10"
    assert place("corrections").command("compare") == "harness compare task=corrections"
    (tmp_path / "harness.yaml").write_text("objective: ndcg@10\n")
    assert place().command("compare", metric="ndcg@10") == "harness compare metric=ndcg@10"
    (tmp_path / "harness.yaml").write_text("objective: ndcg@10\nmetric: mrr\n")
    assert place().command("compare", metric="ndcg@10") == "harness compare metric=ndcg@10"
    assert place().command("compare", metric="mrr") == "harness compare"


def test_a_gate_is_proposed_only_where_something_needs_none():
    assert proposed("wrongly_returned", "gate=score", "gate.threshold=2", "top_k=3", gate="score") == [
        "harness run top_k=3 gate=auto"
    ]
    assert proposed("wrongly_returned", gate="auto") == ["harness sweep gate=none,auto,depth,classifier"]
    assert proposed("wrongly_withheld", "gate=score", "gate.threshold=3", needless=0, gate="score") == [
        "harness run gate=none"
    ]


def test_what_a_recipe_says_too_is_not_replaced():
    assert proposed("wrongly_returned", "experiment=lexical_gated", gate="score") == []
    assert proposed("not_found", "experiment=lexical_gated")[1] == "harness run experiment=lexical_gated depth=300"
    assert proposed("not_found", "experiment=mine") == []


def test_the_two_greatest_losses_are_named_the_greatest_first():
    proposals = Proposals(Invocation({"gate": "none", "rerank": "none"}, ()), ["dense"], 100, 1000)
    losses = NONE | {"wrongly_returned": 0.2, "not_found": 0.3, "misranked": 0.1}
    assert list(proposals.lines(losses, 10)) == [
        "Most is lost to relevant documents that were not found (0.3000), then to documents returned where none are "
        "needed (0.2000). To try:",
        "  harness run depth=300",
        "  harness run gate=auto",
    ]


def test_little_loss_asks_for_nothing():
    proposals = Proposals(Invocation({"gate": "none", "rerank": "none"}, ()), ["bm25"], 100, 1000)
    assert list(proposals.lines(NONE | {"misranked": 0.004}, 10)) == []


def test_words_are_printed_as_they_were_typed():
    assert proposed("not_found", "experiment_name='한국어 1'", "run_name=x", retrievers=("dense",)) == [
        "harness run 'experiment_name=한국어 1' depth=300"
    ]


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
        flags = ["--cfg", "job"] if verb == "ui" or "rerank=cross_encoder" in others else []  # a server; a model
        done = harness(verb, *others, *flags)
        assert done.code == 0, f"{line}\n{done.err}"


def test_the_export_of_a_run_elsewhere_is_found(harness, toy, tmp_path):
    words = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "outputs=my outputs", "experiment_name=e 1")
    done = harness("run", *words)
    [line] = [line for line in done.out.splitlines() if "harness export" in line]
    done = harness(*shlex.split(line)[1:], "format=json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["queries"] == 3
