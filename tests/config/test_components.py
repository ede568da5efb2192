"""Components: recorded names, identities, the leash, and messages about keys and values."""

import re
import sys
import types
import typing
from collections.abc import Mapping

import pytest
import yaml

from harness.config import canonical, components, schema
from harness.config.canonical import digest
from harness.config.commands import CommonConfig
from harness.config.components import component_identity, conf_folder, recorded, recorded_name, target_class
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.experiment.session import cache_for
from harness.experiment.steps import ranking_identity
from harness.recording import retrieval_run
from harness.storage.cache import Cache
from retrievers.base import AtMost

TARGETS = {
    target
    for path in conf_folder().rglob("*.yaml")
    for target in re.findall(r"_target_: *(\S+)", path.read_text("utf-8"))
    if not target.startswith("hydra_plugins.")
}

BM25 = {
    "_target_": "retrievers.lexical.bm25.BM25",
    "tokenizer": {"_target_": "retrievers.lexical.tokenize.CharNgram", "low": 2, "high": 2},
    "variant": "lucene", "k1": 1.5, "b": 0.75, "delta": None, "epsilon": 0.25, "engine": "sparse",
    "runtime": {"threads": None},
}  # fmt: skip
RUN = {
    "dataset": {},
    "retriever": {"bigram": BM25},
    "gate": {"_target_": "harness.gates.gate.ScoreGate", "threshold": 4.5, "source": None, "k": 10},
    "rerank": {"_target_": "retrievers.combine.rerank.NoRerank"},
    "fusion": {"_target_": "retrievers.combine.fusion.RRF", "k": 60, "weights": {}},
    "tokenizer": {}, "encoder": {}, "index": {},
    "metrics": ["modified_map@3", "mrr@10"], "objective": "modified_map@3",
    "top_k": 3, "depth": 100, "public": 0.4, "select_on": "all", "seed": 0,
}  # fmt: skip
DATA = {"documents": "d" * 64, "queries": "e" * 64, "qrels": "f" * 64}


@pytest.fixture
def versions(monkeypatch):
    """Every package has version 1, and so have the measures: literals below do not follow upgrades."""
    monkeypatch.setattr(components, "_installed", lambda package, target: "1")
    monkeypatch.setattr(retrieval_run.measures, "VERSION", 1)


CLASSES = sorted(components._recorded_classes().items())


def test_shipped_components_have_recorded_names_that_lead_back_to_them():
    classes = {target_class({"_target_": target}, "conf") for target in TARGETS}
    assert len(CLASSES) == len(classes), "recorded names are unique"
    for cls in classes:
        name = recorded_name(cls)
        assert components.RECORDED.fullmatch(name), f"{cls}: declare recorded_as = 'group/name' in the class"
        assert target_class({"_target_": name}, "conf") is cls
        inherited = type("Mine", (cls,), {"__module__": "mine"})
        assert recorded_name(inherited) == "mine.Mine", "a class without a name goes by its path, and inherits none"


def test_a_logged_config_names_no_module():
    text = yaml.safe_dump(recorded({"retriever": {"a": BM25}, "list": [BM25, 1], "top_k": 3}))
    assert re.findall(r"_target_: (.*)", text) == ["retriever/bm25", "tokenizer/char_ngram"] * 2
    assert yaml.safe_load(text)["top_k"] == 3


def test_identities_of_a_ranking_and_of_dense_retrieval_are_literals(versions):
    """If one changes, every cached ranking is computed again: change it on purpose or not at all."""
    index = {"retriever": component_identity(BM25), "documents": DATA["documents"]}
    ranking = digest(ranking_identity(index, "a" * 64))
    assert ranking == "2966f98e75e650aba3443eaebcd3af54c53548d91a4291080b464fb0075c6f84"
    lsa = {"_target_": "retrievers.dense.lsa.LSA", "low": 2, "high": 4, "dimensions": 512, "seed": 0}
    node = {"_target_": "retrievers.dense.dense.Dense", "encoder": lsa, "index": {"_target_": "index/flat"}}
    later = {"passages": "none", "window": 5, "overlap": 2}  # arguments that came later, at values without effect
    assert digest(component_identity(node)) == digest(component_identity(node | later))
    assert digest(component_identity(node)) == "06f98da1305a9e1a5a9c29002d44d07583dc1ba88a150d600f8bc665ce66ee45"


def trial_key(**changes):
    return retrieval_run.retrieval_trial_key(Plan.of(RUN | changes), DATA, "b" * 64)


def test_a_trial_key_is_a_literal(versions):
    """If this changes, no sweep goes on where it stopped: change it on purpose or not at all."""
    assert trial_key() == "e32e667411ea03cb343119ddce3c7b8c149d2dc5725a7078edcd9f261856c4c1"


def test_a_language_model_enters_a_trial_key_where_it_writes_something(versions, tmp_path):
    """Literals, as above. A model that is named and not asked changes nothing, nor do price and what is `runtime`."""
    (prompt := tmp_path / "prompt.txt").write_text("{conversation} {references}")
    (ask := tmp_path / "ask.txt").write_text("{conversation}")

    def key(text="user_turns", answer=None, **llm):
        node = {"_target_": "harness.llm.chat.ChatModel", "model": "tiny", **llm}
        query = {"text": text, "file": None, "prompt": None if text == "user_turns" else str(ask)}
        answers = {"llm": node, "prompt": str(answer)} if answer else {}
        target = {"_target_": f"harness.experiment.writing.{'Llm' if answer else 'No'}Answers"}
        return trial_key(llm=node, query=query, answer=target | answers)

    assert key() == key(model="other") == trial_key()
    literal = "02f3651b734a928aa4734b33fee1a6296fc487f5ac0fa9d292319252d5d05d17"
    assert key("rewrite") == key("rewrite", price={"input": 1}, runtime={"parallel": 9}) == literal
    assert key(answer=prompt) == "de7a455d4155119698c341fdcf87525dd6899a57183b75b3a2439a00d90e8af8"
    own = [key("rewrite", model="other"), key("rewrite", base_url="http://localhost:1/v1"), key("expand")]
    own += [key("rewrite", request={"temperature": 1}), key("rewrite", prompt), key(answer=prompt, model="other")]
    ask.write_text("Rewrite {conversation}")
    own += [key("rewrite"), key("expand")]
    assert len({*own, literal, key(), key(answer=prompt)}) == len(own) + 3


def test_nothing_changes_when_a_class_moves(versions, monkeypatch):
    elsewhere = types.ModuleType("retrievers.elsewhere")
    elsewhere.BM25 = target_class(BM25, "conf")
    monkeypatch.setitem(sys.modules, "retrievers.elsewhere", elsewhere)
    monkeypatch.setattr(elsewhere.BM25, "__module__", "retrievers.elsewhere")
    moved = BM25 | {"_target_": "retrievers.elsewhere.BM25"}
    assert component_identity(moved) == component_identity(BM25)
    assert recorded(moved) == recorded(BM25)
    assert trial_key(retriever={"bigram": moved}) == trial_key()


def test_what_may_not_be_used_again_has_a_name_of_its_own(versions, tmp_path):
    """`cache: false` beside a retriever's other arguments: an identity, a cache and, in each process, a trial key."""
    fresh, shared = BM25 | {"runtime": {"threads": None, "cache": False}}, Cache(tmp_path)
    assert not components.reusable(fresh)
    assert cache_for(BM25 | {"cache": True}, shared) is shared
    assert cache_for(fresh, shared).root == cache_for(fresh, Cache(tmp_path)).root != tmp_path


GATE = {"_target_": "harness.gates.gate.ScoreGate", "threshold": 1.0}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        *((target, "_target_.*is not allowed") for target in (
            "os.system", "subprocess.Popen", "builtins.eval", "retrieversx.Evil", "harness", "harness.gates.gate._x",
            "harness._x.Y", 7, None,
        )),
        ("harness.cli.os.system", "there is no module 'harness.cli.os'"),
        ("harness.config.check.check_config", "harness.config.check has no class 'check_config'"),
        ("harness.storage.cache.Path", "harness.storage.cache.Path is not a component"),
        ("harness.gates.gate.ScoreGat", "Did you mean 'ScoreGate'"),
        ("harness.gates.gat.ScoreGate", "there is no module 'harness.gates.gat'"),
        ("gate/scor", r"no component is recorded as 'gate/scor'\. Did you mean 'gate/score'\?"),
    ],
)  # fmt: skip
def test_a_config_names_only_components(target, message):
    with pytest.raises(BadInput, match=message):
        target_class({"_target_": target}, "gate")


def test_build_makes_inner_parts_first_and_splices_runtime():
    node = {
        "_target_": "retrievers.lexical.bm25.BM25",
        "tokenizer": {"_target_": "retrievers.lexical.tokenize.Kiwi", "tags": ["NNG"], "runtime": {"workers": 1}},
    }
    seen = []
    built = components.build(node, lambda key, part, make: seen.append((key, part["_target_"])) or make())
    assert seen == [("tokenizer", "retrievers.lexical.tokenize.Kiwi")]
    assert type(built.tokenizer).__name__ == "Kiwi"


def test_identity_fills_defaults_and_leaves_runtime_out():
    short = {"_target_": "harness.gates.gate.ScoreGate"}
    full = {**short, "threshold": 0.0, "source": None, "signal": "top_score", "k": 10}
    assert component_identity(short) == component_identity(full) != component_identity(full | {"k": 5})
    kiwi = {"_target_": "retrievers.lexical.tokenize.Kiwi", "tags": ["NNG"]}
    one, two = (component_identity(kiwi | {"runtime": {"workers": workers}}) for workers in (1, 2))
    assert one == two
    assert "kiwipiepy" in one["packages"]


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        (0, schema.Key(int, least=1), "too small: the minimum is 1"),
        (9, schema.Key(int, most=5), "too large: the maximum is 5"),
        (schema.LARGEST + 1, schema.Key(int), "=1000000000000001 is too large: the maximum is 1000000000000000"),
        ("3", schema.Key(int), "is not a whole number"),
        (True, schema.Key(int), "is not a whole number"),
        (float("nan"), schema.Key(float), "not a finite number"),
        (float("inf"), schema.Key(float | None), "not a finite number"),
        ("jsn", schema.keys(CommonConfig)["format"], "one of text, json.*Did you mean 'json'"),
        ("???", schema.Key(str), "is missing"),
        ([1], schema.Key(list[str]), "a list of text"),
        (None, schema.Key(str), "is not text"),
        ({}, schema.Key(str | None), "is not text or null"),
        ("x", schema.Key(Mapping[str, str] | None), "is not a group of keys or null"),
    ],
)
def test_values_are_checked_with_words(value, key, message):
    with pytest.raises(BadInput, match=rf"(?s)name.*{message}"):
        schema.check_value(value, key, "name")


def test_a_key_without_a_bound_takes_what_floats_tell_apart_and_no_number_of_thousands_of_digits():
    schema.check_value(schema.LARGEST, schema.Key(int), "limit")
    with pytest.raises(BadInput, match=r"limit=\(more than 10\^30\) is too large"):
        schema.check_value(10**5000, schema.Key(int), "limit")


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, "1.0"),
        (-0.0, float | None, "0.0"),
        (None, float | None, "None"),
        (1, int, "1"),
        (True, float, "True"),
        ("1", str | None, "'1'"),
        ([1, 0.5], list[float], "[1.0, 0.5]"),
        ({"bm25": 1}, dict[str, float] | None, "{'bm25': 1.0}"),
        ({"max_tokens": 16}, Mapping[str, object], "{'max_tokens': 16}"),
    ],
)
def test_a_value_has_one_spelling(value, hint, expected):
    assert repr(schema.one_spelling(value, hint)) == expected


def test_values_inside_components_have_one_spelling():
    node = {"gate": GATE | {"threshold": 2, "runtime": {"parallel": 3}}}
    spelled = components.changed_values(node, {}, lambda key, value: schema.one_spelling(value, key.hint))["gate"]
    assert repr(spelled["threshold"]) == "2.0"
    assert spelled["runtime"] == {"parallel": 3}


def test_digest_is_of_canonical_json():
    assert canonical.digest({"a": 1, "b": "한"}) == canonical.digest({"b": "한", "a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical.digest(float("nan"))


def parts(hint):
    """A hint and all hints inside it; an annotated one counts as a whole."""
    yield hint
    if typing.get_origin(hint) is not typing.Annotated:
        for inner in typing.get_args(hint):
            yield from parts(inner)


@pytest.mark.parametrize(("name", "cls"), CLASSES)
def test_numbers_of_components_are_bounded_and_protocols_have_a_kind(name, cls):
    """Constructors check the numbers in mappings, whose names are free."""
    hints = typing.get_type_hints(cls.__init__, include_extras=True)
    for key in components._signature(cls).parameters:
        inner = [typing.get_origin(one) or one for one in parts(hints[key])]
        protocols = {one.__name__ for one in inner if getattr(one, "_is_protocol", False)}
        assert protocols <= {*components.KINDS}, f"{name}.{key}"
        if dict in inner:
            continue
        assert not {int, float} & {*inner}, f"{name}.{key}: annotate it with AtMost"
        metadata = [meta for one in parts(hints[key]) for meta in getattr(one, "__metadata__", ())]
        for limit in (one for one in metadata if isinstance(one, AtMost)):
            value, bounds = int(limit.most) + 1, components.argument_keys(cls)[key]
            with pytest.raises(BadInput, match=rf"{key}={value} is too large: the maximum is .* \(.+\)\.$"):
                schema.check_value(value, bounds, key)


def test_every_choice_of_a_group_is_recorded_under_its_name():
    for path in conf_folder().glob("*/*.yaml"):
        group, content = path.parent.name, yaml.safe_load(path.read_text("utf-8")) or {}
        for where, node in canonical.mappings_in({group: content}, ""):
            if "_target_" in node and not node["_target_"].startswith("hydra"):
                kind = recorded_name(target_class(node, where)).partition("/")[0]
                inner = where.rpartition(".")[2] != group
                assert kind in ({group, *components.KINDS.values()} if inner else {group}), (path, where)


def of(target, **arguments):
    return {"_target_": target, **arguments}


WORD = of("retriever/bm25", tokenizer=of("tokenizer/word"))


@pytest.mark.parametrize(
    ("node", "where", "message"),
    [
        (GATE | {"threshhold": 2}, "gate", "gate.threshhold is unknown.*Did you mean 'threshold'"),
        (GATE | {"threshold": "high"}, "gate", "gate.threshold='high' is not a finite number"),
        (GATE | {"signal": "top"}, "gate", "'top' is not a gate signal.*Choose one of top_score, margin"),
        ({"threshold": 1.0}, "gate", "must name a component"),
        (None, "gate", "must name a component"),
        (of("harness.gates.rule.FittedGate"), "gate", "lacks file"),
        (of("fusion/weighted_sum", weights={"a": 1e308}), "fusion", r"weights.a is 1e\+308: give a number"),
        (of("fusion/weighted_sum", floors={"a": 1e308}), "fusion", r"floors.a is 1e\+308: give a number"),
        # Components of another group, and classes that are none.
        (of("tracking/mlflow"), "gate", r"MlflowTracker is not of the group gate\. Choose one with gate=NAME: "),
        (of("dataset/sample"), "tokenizer", r"tokenizer\._target_: Sample is not of the group tokenizer"),
        (of("measure/bertscore"), "rerank", r"rerank\._target_: BertScore is not of the group rerank"),
        (of("encoder/lsa"), "retriever.x", r"retriever\.x\._target_: LSA is not of the group retriever"),
        (of("harness.gates.gate.Decision"), "gate", "Decision is not a component"),
        (of("retrievers.base.Retriever"), "retriever.x", "Retriever is not a component"),
        # What is inside a component.
        (
            WORD | {"tokenizer": None},
            "retriever.x",
            r"x\.tokenizer must name a component .* with tokenizer=NAME: char_",
        ),
        (WORD | {"tokenizer": "word"}, "retriever.x", r"x\.tokenizer must name a component"),
        (WORD | {"tokenizer": of("index/flat")}, "retriever.x", r"_target_: Flat is not of the group tokenizer"),
        (WORD | {"runtime": 5}, "retriever.x", r"x\.runtime must be a group of keys, not 5"),
        (
            WORD | {"runtime": {"threads": 1000}},
            "retriever.x",
            r"x\.runtime\.threads=1000 is too large: the maximum is 256",
        ),
        (WORD | {"runtime": {"thread": 1}}, "retriever.x", r"x\.thread is unknown.*Did you mean 'threads'"),
    ],
)
def test_a_component_that_does_not_fit_is_refused(node, where, message):
    components.check_component(WORD, "retriever.x")
    with pytest.raises(BadInput, match=message):
        components.check_component(node, where)


@pytest.mark.parametrize("rows", [[], [["q", "d1"]], [["q", "d1"], [], ["가"]]])
def test_the_digest_of_rows_is_that_of_their_list(rows):
    assert canonical.digest_rows(map(canonical.canonical, rows)) == canonical.digest(rows)
