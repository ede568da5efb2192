"""Every shipped config is composed, checked and run."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
import tiny_models
import yaml
from chat_server import ChatServer
from search_server import DIALECTS, SearchServer

from harness.cluster.ray_connection import disconnect
from harness.config import command_list, commands, components, composing, manual, schema
from harness.config.components import target_class

CONF = Path(__file__).resolve().parents[2] / "conf"
QUIET = ("tracking=none", "format=json")
TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word")
CHOICES = [(path.parent.name, path.stem) for path in sorted(CONF.glob("*/*.yaml"))]


def test_the_configs_of_a_checkout_are_found():
    assert components.conf_folder() == CONF


# Further overrides that a choice needs to take effect.
WITH = {
    "answer": [],
    "cluster": [],
    "encoder": ["retriever=dense"],
    "index": ["retriever=dense", "encoder=lsa"],
    "fusion": ["retriever=hybrid_lexical"],
    "gate": [],
    "llm": ["gate=llm", "llm.model=tiny"],
    "rerank": [],
    "retriever": [],
    "tokenizer": [],
}
LEARNT = {"rule": {"features": [[None, "query_characters"]], "k": 10, "levels": [3, 0], "thresholds": [4.0]}}
FUSED = {
    "version": 1,
    "rule": {
        "rankings": ["bigram", "bm25"],
        "features": [{"ranking": name, "feature": "z_score", "weight": 1.0} for name in ("bigram", "bm25")],
    },
}
ALSO = {
    ("fusion", "fitted"): ["fusion.file=fusion.json"],
    ("answer", "llm"): ["llm.model=tiny"],
    ("gate", "fitted"): ["gate.file=gate.json"],
    ("gate", "llm"): ["llm.model=tiny"],
    ("encoder", "local"): ["encoder.path=model"],
    ("retriever", "http"): ["retriever.http.ids=results[*].id", 'retriever.http.body={query: "{query}", k: "{k}"}'],
    ("retriever", "file"): ["retriever.file.path=mate.trec"],
    ("retriever", "python"): ["retriever.python.function=conf_search:search", "plugins.allow=[conf_search]"],
    ("index", "ivf_pq"): ["index.bits=4", "encoder.dimensions=32"],
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub cache in which a tiny model replaces every model that a config names."""
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:  # as long as the configs ask for
        patch.setattr(tiny_models, "LENGTH", 8192)
        patch.setitem(tiny_models.HIDDEN, "max_position_embeddings", 8194)
        encoder = tiny_models.tiny_bge_m3(folder / "encoder")
        reranker = tiny_models.tiny_cross_encoder(folder / "reranker")
    nodes = [yaml.safe_load((CONF / group / f"{choice}.yaml").read_text("utf-8")) for group, choice in CHOICES]
    parts = [part for node in nodes for part in (node, *node.values()) if _names_model(part)]
    for name, revision in {(part["model"], part["revision"]) for part in parts}:
        commit = revision if revision and len(revision) == 40 else tiny_models.COMMIT
        tiny_models.hub_cache(folder / "cache", name, reranker if "reranker" in name else encoder, commit)
    return folder


def _names_model(part):
    return isinstance(part, dict) and isinstance(part.get("model"), str) and "revision" in part


@pytest.fixture(scope="module")
def chat():
    def model(asked, time):
        return '{"answer": "네"}' if asked.schema else "no" if "안녕" in asked.text else "yes"

    with ChatServer(model=model) as server:
        yield server


def found(query, k):
    """What a search service finds in the tiny data set: for a text or a vector."""
    return [("d2", 2.5), ("d1", 1.5)][:k]


@pytest.fixture
def stack():
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def models(hub, monkeypatch, tmp_path):
    tiny_models.use_hub_cache(monkeypatch, hub / "cache")
    (tmp_path / "model").symlink_to(hub / "encoder")


@pytest.mark.slow
@pytest.mark.parametrize(("group", "choice"), [one for one in CHOICES if one[0] in WITH])
def test_every_choice_runs_on_a_tiny_data_set(
    harness, toy, models, chat, stack, tmp_path, monkeypatch, lite, group, choice
):
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(lite))
    (tmp_path / "gate.json").write_text(json.dumps(LEARNT))
    (tmp_path / "fusion.json").write_text(json.dumps(FUSED))
    (tmp_path / "mate.trec").write_text("7 Q0 d1 1 2 x\n3 Q0 d2 1 2 x\n5 Q0 d3 1 2 x\n")
    (tmp_path / "conf_search.py").write_text("def search(queries, k):\n    return [[('d1', 1)] for _ in queries]\n")
    words = [*QUIET, f"{group}={choice}", *WITH[group], *ALSO.get((group, choice), [])]
    if choice == "ray":
        stack.callback(disconnect)  # ends the cluster that the run has started
    if choice in ("llm", "chat"):
        words += [f"llm.base_url={chat.url}"]
    if group == "retriever" and choice in ("http", *DIALECTS):
        server = stack.enter_context(SearchServer(found, choice if choice in DIALECTS else "fastapi"))
        words += [f"retriever.{choice}.url={server.url}"]
    if group != "index":  # three documents are too few for an approximate index
        words += ["dataset=contest", "dataset.path=toy"]
    if group != "tokenizer":
        words += ["tokenizer=word"]
    assert harness("run", *words).json["counts"]["scored"] == (60 if group == "index" else 3)


def test_every_group_of_choices_is_tried():
    assert {group for group, _ in CHOICES} == {*WITH, "dataset", "task", "tracking", "sweep", "search", "experiment"}


@pytest.mark.parametrize("choice", [choice for group, choice in CHOICES if group == "experiment"])
def test_every_experiment_runs(harness, toy, models, choice):
    assert harness("run", *QUIET, *TOY, f"experiment={choice}").json["counts"]["scored"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("choice", [choice for group, choice in CHOICES if group == "sweep"])
def test_every_named_sweep_runs(harness, toy, choice):
    few = {"bm25_k1_b": ["retriever.bm25.k1=0.9,1.5"], "auto": ["retriever=hybrid_lexical", "gate=none"]}
    words = [*TOY[: 2 if choice == "tokenizer" else 3], f"sweep={choice}", *few.get(choice, [])]
    found = harness("sweep", *QUIET, *words).json
    assert found["trials"]["finished"] == found["trials"]["asked"] > 3
    assert found["best"]["value"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("choice", [choice for group, choice in CHOICES if group == "search" and choice != "auto"])
def test_every_sampler_searches(harness, toy, choice):
    few = [] if choice == "grid" else ["search.trials=3", "search.batch=2"]
    found = harness("sweep", *QUIET, *TOY, f"search={choice}", *few, "gate=score", "gate.threshold=1,2,3").json
    assert found["trials"]["finished"] == 3


def test_every_dataset_names_a_source_that_exists():
    for _, choice in [one for one in CHOICES if one[0] == "dataset"]:
        node = yaml.safe_load((CONF / "dataset" / f"{choice}.yaml").read_text("utf-8"))
        assert target_class(node, "dataset").__module__.startswith(("harness.data.", "harness.corpus."))


def test_chunks_have_the_same_settings_wherever_they_are_made():
    dataset = yaml.safe_load((CONF / "dataset" / "chunked.yaml").read_text("utf-8"))
    assert schema.schema_defaults(commands.ChunkKeys) == dataset["chunk"]


@pytest.mark.parametrize("name", command_list.PRIMARY)
def test_a_primary_config_has_the_groups_of_its_class_and_no_keys(name):
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text("utf-8"))
    known = schema.schema_groups(command_list.config_class(name))
    assert {*manual.manual(name).groups} == {*known}
    assert {*content} - {"defaults", "hydra"} <= {*known}


@pytest.mark.parametrize("name", command_list.PRIMARY)
def test_a_composed_config_becomes_typed_values(name):
    words = [f"{key}=x" for key, one in schema.keys(command_list.config_class(name)).items() if one.default == "???"]
    document, _ = composing.compose(name.replace("_", " "), words, silent=True)
    config = command_list.config_class(name).of(document)
    assert config.outputs == Path("outputs")
    assert config.document is document


def test_every_yaml_says_what_it_is():
    for path in CONF.rglob("*.yaml"):
        assert path.read_text("utf-8").lstrip().startswith("#"), path
