"""Every shipped config is composed, checked and run."""

from pathlib import Path

import pytest
import yaml

from harness import config

CONF = Path(__file__).resolve().parents[1] / "conf"
QUIET = ("tracking=none", "format=json")
CHOICES = [(path.parent.name, path.stem) for path in sorted(CONF.glob("*/*.yaml"))]


def test_the_configs_of_a_checkout_are_found():
    assert config.folder() == CONF


@pytest.mark.parametrize(("group", "choice"), [one for one in CHOICES if one[0] not in ("dataset", "task", "tracking")])
def test_every_choice_runs_on_a_tiny_data_set(harness, toy, group, choice):
    tokenizer = () if group == "tokenizer" else ("tokenizer=word",)
    found = harness("run", "dataset=contest", "dataset.path=toy", *tokenizer, *QUIET, f"{group}={choice}").json
    assert found["counts"]["scored"] == 3


def test_every_dataset_names_a_source_that_exists():
    for _, choice in [one for one in CHOICES if one[0] == "dataset"]:
        node = yaml.safe_load((CONF / "dataset" / f"{choice}.yaml").read_text("utf-8"))
        assert config.target_class(node, "dataset").__module__ == "harness.readers"


@pytest.mark.parametrize("verb", ["run", "score", "search", "export", "ui", "doctor"])
def test_every_key_is_known_to_the_checks(verb):
    """A plain key of a primary config has a type in config.KEYS, so that a wrong value is refused with words."""
    plain = config.flatten(yaml.safe_load((CONF / f"{verb}.yaml").read_text("utf-8")))
    assert set(plain) - {"defaults"} <= set(config.KEYS)


def test_every_yaml_says_what_it_is():
    for path in CONF.rglob("*.yaml"):
        assert path.read_text("utf-8").lstrip().startswith("#"), path
