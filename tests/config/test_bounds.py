"""Every number that a config can give has a bound, and every place takes its own kind of component only."""

import typing

import pytest
import yaml

from harness.config import canonical, components, schema
from harness.config.commands import RunConfig
from harness.config.components import conf_folder
from harness.errors import BadInput
from retrievers.base import AtMost

CLASSES = sorted(components._recorded_classes().items())
NUMBERS = (int, float)


def parts(hint):
    """A hint and all hints inside it; an annotated one counts as a whole."""
    yield hint
    if typing.get_origin(hint) is not typing.Annotated:
        for inner in typing.get_args(hint):
            yield from parts(inner)


def arguments():
    for name, cls in CLASSES:
        hints = typing.get_type_hints(cls.__init__, include_extras=True)
        for key in components._signature(cls).parameters:
            yield pytest.param(name, key, hints[key], id=f"{name}.{key}")


@pytest.mark.parametrize(("name", "key", "hint"), arguments())
def test_numbers_of_components_are_bounded(name, key, hint):
    """Those of a mapping by the constructor itself, since their names are free."""
    if typing.get_origin(hint) is dict or any(typing.get_origin(one) is dict for one in typing.get_args(hint)):
        return
    assert not any(one in NUMBERS for one in parts(hint)), f"{name}.{key}: annotate it with AtMost"
    limits = [meta for one in parts(hint) for meta in getattr(one, "__metadata__", ()) if isinstance(meta, AtMost)]
    if limits:
        bounds = components.argument_keys(components._recorded_classes()[name])[key]
        assert bounds.most == limits[0].most
        assert bounds.why
        value = int(limits[0].most) + 1
        with pytest.raises(BadInput, match=rf"{key}={value} is too large: the most is .* \(.+\)\.$"):
            schema.check_value(value, bounds, key)


@pytest.mark.parametrize(("kind", "arguments"), [("fusion/weighted_sum", "weights"), ("fusion/weighted_sum", "floors")])
def test_numbers_of_mappings_are_bounded(kind, arguments):
    with pytest.raises(BadInput, match=f"{arguments}.a is 1e\\+308: give a number"):
        components.check_component({"_target_": kind, arguments: {"a": 1e308}}, "fusion")


def test_a_key_without_a_bound_takes_what_floats_tell_apart():
    key = schema.Key(int)
    schema.check_value(schema.LARGEST, key, "limit")
    with pytest.raises(BadInput, match="limit=1000000000000001 is too large: the most is 1000000000000000"):
        schema.check_value(schema.LARGEST + 1, key, "limit")


def test_a_number_of_thousands_of_digits_is_not_written_out():
    with pytest.raises(BadInput, match=r"top_k=\(more than 10\^30\) is too large"):
        schema.check_value(10**5000, schema.keys(RunConfig)["top_k"], "top_k")


@pytest.mark.parametrize(
    "path", sorted(conf_folder().glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_group_holds_components_recorded_under_its_name(path):
    group = path.parent.name
    content = yaml.safe_load(path.read_text("utf-8")) or {}
    for where, node in canonical.mappings_in({group: content}, ""):
        if "_target_" in node and not node["_target_"].startswith("hydra"):
            kind = components.recorded_name(components.target_class(node, where)).partition("/")[0]
            inner = where.rpartition(".")[2]
            assert kind in {group, *components.KINDS.values()} if inner != group else {group}, where


def test_every_protocol_of_an_argument_has_a_kind():
    for _, cls in CLASSES:
        for hint in typing.get_type_hints(cls.__init__).values():
            for one in parts(hint):
                if getattr(one, "_is_protocol", False):
                    assert one.__name__ in components.KINDS


@pytest.mark.parametrize(
    ("node", "where", "message"),
    [
        ("tracking/mlflow", "gate", r"gate\._target_: MlflowTracker is no gate\. Choose one as gate=NAME does: auto, "),
        ("dataset/sample", "tokenizer", r"tokenizer\._target_: Sample is no tokenizer"),
        ("measure/bertscore", "rerank", r"rerank\._target_: BertScore is no rerank\. Choose one as rerank=NAME does"),
        ("encoder/lsa", "retriever.x", r"retriever\.x\._target_: LSA is no retriever"),
        ("harness.gates.gate.Decision", "gate", r"Decision is not a component"),
        ("harness.gates.learned.Learner", "gate", r"Learner is not a component"),
        ("retrievers.base.Retriever", "retriever.x", r"Retriever is not a component"),
    ],
)
def test_a_component_of_another_kind_is_refused(node, where, message):
    with pytest.raises(BadInput, match=message):
        components.check_component({"_target_": node}, where)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": None}, r"x\.tokenizer must name a component .* Choose one as tokenizer=NAME does: char_ngram"),
        ({"tokenizer": "word"}, r"x\.tokenizer must name a component"),
        ({"tokenizer": {"_target_": "index/flat"}}, r"x\.tokenizer\._target_: Flat is no tokenizer"),
        ({"runtime": 5}, r"x\.runtime must be a group of keys, not 5"),
        ({"runtime": {"threads": 1000}}, r"x\.runtime\.threads=1000 is too large: the most is 256"),
        ({"runtime": {"thread": 1}}, r"x\.thread is unknown.*Did you mean 'threads'"),
    ],
)
def test_what_is_inside_a_component_is_checked_too(change, message):
    node = {"_target_": "retriever/bm25", "tokenizer": {"_target_": "tokenizer/word"}}
    components.check_component(node, "retriever.x")
    with pytest.raises(BadInput, match=message):
        components.check_component(node | change, "retriever.x")
