"""YAML files of strangers are refused shortly, with file and line, before anything is built."""

import os

import pytest

from harness.config import yaml_files
from harness.errors import BadInput

BOMB = "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: &b [1, *b]", r"x\.yaml:2: \*b stands within &b"),
        ("&top\na:\n  b: {c: *top}", r"x\.yaml:3: \*top stands within &top"),
        ("a: &a\n  b: &b [*a]", r"x\.yaml:2: \*a stands within &a"),
        (BOMB, r"x\.yaml:5: the aliases repeat more than 10,000 values"),  # 10 + 110 + 1,110 + 11,110
        (BOMB.replace("[", "{<<: [").replace("]", "]}"), r"x\.yaml:\d: the aliases repeat more than 10,000 values"),
        ("a: *b", r"x\.yaml:1: this is not a config: found undefined alias"),
        ("a: 1\n  b: 2", r"x\.yaml:2: this is not a config: mapping values are not allowed here"),
        ("a: !!bool x", r"x\.yaml: this is not a config: a value is not what its tag says"),
        ("a: !!python/name:os.system x", r"x\.yaml:1: this is not a config: could not determine a constructor"),
        ("a: 2026-02-31", r"x\.yaml: this is not a config: day is out of range"),
        ("[" * 900, r"x\.yaml: this is not a config: it is nested too deeply"),
    ],
)
def test_what_is_no_config_is_refused_with_its_line(tmp_path, text, message):
    (file := tmp_path / "x.yaml").write_text(text, "utf-8")
    with pytest.raises(BadInput, match=message) as refused:
        yaml_files.load_yaml(file)
    assert len(str(refused.value)) < 400 + len(str(file))


def test_aliases_that_repeat_little_are_read(tmp_path):
    (file := tmp_path / "x.yaml").write_text("a: &a {x: &x 1, y: [*x]}\nb: {<<: *a, z: *x}\nc: [*a, *a]\n", "utf-8")
    a = {"x": 1, "y": [1]}
    assert yaml_files.load_yaml(file) == {"a": a, "b": a | {"z": 1}, "c": [a, a]}


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, what in ((".", "a folder"), ("pipe.yaml", "not a file"), ("nothing.yaml", "not a file")):
        with pytest.raises(BadInput, match=f"this is not a config: it is {what}"):
            yaml_files.text_of(tmp_path / name)
