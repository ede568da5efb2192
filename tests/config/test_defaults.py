"""`harness.yaml`: which of its lines a command takes, and what is refused with file and line."""

import pytest

from harness.config import defaults, overrides
from harness.errors import BadInput

FIRST = "dataset: contest\ndataset.path: data\nexperiment_name: first\n"


@pytest.fixture
def taken(tmp_path):
    """The overrides that a command takes from a file, and the line about it."""

    def call(text, name="run", *words):
        (tmp_path / "harness.yaml").write_text(text, "utf-8")
        found = defaults.command_defaults(name, words, tmp_path)
        choices = [f"{one.key}={one.text}" for one in found.settings if one.is_choice]
        key_of = overrides.lookup(name, [*choices, *words])
        return [overrides.override_of(one, key_of) for one in found.settings], found.note()

    return call


def test_a_command_takes_the_keys_that_it_has(taken):
    words, note = taken(FIRST + "port: 5050\n")
    assert words == ["dataset=contest", "dataset.path='data'", "experiment_name='first'"]
    assert note == "Defaults: harness.yaml"
    assert taken(FIRST + "port: 5050\n", "ui")[0] == ["experiment_name='first'", "port=5050"]
    assert taken(FIRST, "doctor_cache") == ([], "")


def test_an_objective_is_for_commands_that_make_runs(taken):
    """The others go by what their runs are ranked by already."""
    assert taken("objective: map\n", "run")[0] == ["objective='map'"]
    for command in ("compare", "export"):
        assert taken("objective: map\n", command) == ([], "")
        assert taken("metric: map\n", command)[0] == ["metric='map'"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("experiment_name: 007", "experiment_name='007'"),
        ("run_name: null", "run_name=null"),
        ("dataset.path: 데이터/a,b (1)", "dataset.path='데이터/a,b (1)'"),
        ("dataset.path: it's", r"dataset.path='it\'s'"),
        ("top_k: 5", "top_k=5"),
        ("public: 0.25", "public=0.25"),
        ("show: 5", None),
        ("metrics: [map, ndcg@10]", "metrics=['map','ndcg@10']"),
        ("objective: map,ndcg", "objective='map,ndcg'"),  # a text, not two values
        ("fusion.weights.mine: 2", "fusion.weights.mine=2"),
        ("experiment: lexical_gated", "experiment=lexical_gated"),
    ],
)
def test_values_become_overrides_of_one_value(taken, line, word):
    assert taken(line)[0] == ([word] if word else [])


@pytest.mark.parametrize(
    ("text", "words", "left", "note"),
    [
        ("top_k: 5", ["top_k=1"], [], ""),
        (FIRST, ["dataset=contest"], ["dataset.path", "experiment_name"], ""),
        (FIRST, ["dataset=sample"], ["experiment_name"], "without dataset.path"),
        ("gate: score\ngate.threshold: 3", ["gate=auto"], [], "without gate.threshold"),
        ("gate: score\ngate.threshold: 3", ["gate=score,auto"], ["gate.threshold"], ""),  # for the trials with score
        ("gate: score\ngate.threshold: 3", ["gate=none,auto"], [], "without gate.threshold"),
        ("retriever: dense\nretriever.dense.index: 1", ["sweep=everything_small"], [], "without retriever.dense.index"),
        ("gate: score\ngate.threshold: 3", ["sweep=threshold"], [], ""),  # the recipe says both
        ("gate: auto\ngate.k: 5\ntop_k: 5", ["experiment=lexical_gated"], ["top_k"], "without gate.k"),
        ("retriever: hybrid\nfusion.weights.bm25: 2", ["retriever=bm25"], [], "without fusion.weights.bm25"),
        ("experiment_name: first", ["task=corrections"], [], "without experiment_name"),
        ("tracking: csv\ntracking.path: runs.csv", ["tracking=none"], [], "without tracking.path"),
    ],
)
def test_the_command_line_has_the_last_word(taken, text, words, left, note):
    overrides, line = taken(text, "sweep", *words)
    assert [word.partition("=")[0] for word in overrides] == left
    assert note in line


def test_recipes_of_ones_own_are_known(taken, tmp_path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "short.yaml").write_text("# @package _global_\n# Short.\ntop_k: 1\n")
    assert taken("top_k: 5", "run", "--config-dir", str(tmp_path / "mine"), "experiment=short")[0] == []
    assert taken("top_k: 5", "run", "experiment=short")[0] == ["top_k=5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("top_kk: 5", r"harness\.yaml:1: no command has the key top_kk\. Did you mean 'top_k'"),
        ("\n# note\ndataset.pth: x", r"harness\.yaml:3: .*key dataset\.pth\. Did you mean 'dataset\.path"),
        ("dataset: contst", r"harness\.yaml:1: dataset: contst: there is no such choice\. Did you mean 'contest'"),
        (f"dataset: {'x' * 30_000}", rf"dataset: {'x' * 200}: there is no such choice"),
        ("dataset: [contest, sample]", r"harness\.yaml:1: .*no such choice"),
        ("dataset:\n  path: data", r"harness\.yaml:1: write `dataset\.path: value`"),
        ("top_k: 1\ntop_k: 2", r"harness\.yaml:2: top_k is set twice; .*harness\.yaml:1"),
        ("top_k: [[1]]", r"harness\.yaml:1: top_k must be a single value"),
        ("top_k: .inf", r"harness\.yaml:1: top_k: inf is not a finite number"),
        ("objective: 2024-01-01", r"harness\.yaml:1: objective: put the value in quotation marks"),
        ("- top_k", r"harness\.yaml:1: each line must be"),
        ("top_k: 'a", r"harness\.yaml:\d: this is not a config"),
        ("? [a]\n: 1", r"harness\.yaml:1: a key must be a name"),
        ("x: \x00", r"harness\.yaml: this is not a config"),
        ("experiment_name: ${oc.env:HOME}", r"harness\.yaml:1: .* is not allowed here"),
        ("top_k: !!python/object/apply:os.getcwd []", r"harness\.yaml:1: top_k: could not determine a constructor"),
        ("hydra.run.dir: x", r"harness\.yaml:1: hydra\.run\.dir can only be given on the command line"),
        ("host: 0.0.0.0", r"harness\.yaml:1: host can only be given on the command line"),
        ("output: /home/me/notes.txt", "output can only be given on the command line"),
        ("prune.keep_gb: 0", r"prune\.keep_gb can only be given on the command line"),
        ("tracking.uri: http://far", r"tracking\.uri can only be given on the command line or in MLFLOW_TRACKING_URI"),
        ("tracking: wandb", "tracking=wandb sends data elsewhere, and can only be chosen on the command line"),
        ("store.path: s3://theirs/x", r"on the command line or in HARNESS_CACHE, not in harness\.yaml"),
        ("retriever.http.url: http://far", r"harness\.yaml:1: retriever\.http\.url can only be given on the command"),
        ("cluster.runtime.address: far:6379", r"yaml:1: cluster\.runtime\.address can only be given on the command"),
        ("retriever.solr.runtime.headers_env.A: KEY", r"yaml:1: retriever\.solr\.runtime\.headers_env\.A can only be"),
        ("gate: llm\nllm.base_url: http://far", r"harness\.yaml:2: llm\.base_url can only be given on the command"),
        ("retriever.bm25._target_: os.system", r"harness\.yaml:1: no command has the key retriever\.bm25\._target_"),
        ("fusion.weights._target_: os.system", r"harness\.yaml:1: no command has the key fusion\.weights\._target_"),
        ("dataset: ../x", r"harness\.yaml:1: .*no such choice"),
    ],
)
def test_what_no_command_can_mean_is_refused_with_its_place(taken, text, message):
    with pytest.raises(BadInput, match=message):
        taken(text, "doctor")


def test_bytes_that_are_no_text_and_large_files_are_refused(tmp_path):
    (tmp_path / "harness.yaml").write_bytes(b"top_k: \xff")
    with pytest.raises(BadInput, match="can't decode byte 0xff"):
        defaults.read_defaults(tmp_path / "harness.yaml")
    (tmp_path / "harness.yaml").write_text("#" * defaults.SIZE_LIMIT + "\n")
    with pytest.raises(BadInput, match="may have at most"):
        defaults.read_defaults(tmp_path / "harness.yaml")


@pytest.mark.slow
def test_runs_and_sweeps_use_the_file_and_their_names_do_not_repeat_it(harness, toy, tmp_path, tracker):
    lines = "dataset: contest\ndataset.path: toy\ntokenizer: word\n"
    (tmp_path / "harness.yaml").write_text(lines + "top_k: 2\n")
    done = harness("run", "format=json", "depth=50")
    assert done.err.splitlines()[0] == "Defaults: harness.yaml"
    run = tracker.run(done.json["run_id"])
    assert (run.name, run.params["top_k"]) == ("bm25-word-none depth=50", "2")
    shown = harness("run", "--cfg", "job", "top_k=1").out
    assert shown.startswith("# from harness.yaml:1: dataset=contest\n# from harness.yaml:2: dataset.path=toy\n")
    assert "top_k: 1" in shown
    assert "top_k: 2" not in shown
    assert "\npath: toy\n" in harness("run", "--cfg", "job", "-p", "dataset").out, "-p names a key, and sets none"
    (tmp_path / "harness.yaml").write_text(lines + "gate: score\ngate.threshold: 3\n")
    assert harness("sweep", "sweep=threshold", "dry_run=true", "format=json").json["trials"] == 41
