"""What `make base` finds in documents and in output; running it takes an environment of its own."""

import check_base
import pytest
from base_check.shown import PLACEHOLDER, Hint, commands, hints

DOCUMENT = """
```
harness run ... trace=errors     # of some queries
harness sweep ... gate=none,auto \\
    top_k=1,3

measure    mean
harness/   a folder
```

```bash
# a comment
cp a b
```

```python
harness = 1
```
"""


def test_the_commands_of_a_document(tmp_path):
    (tmp_path / "page.md").write_text(DOCUMENT, "utf-8")
    found = [(one.place, one.text) for one in commands(tmp_path / "page.md", "page.md")]
    assert found == [
        ("page.md:3", "harness run ... trace=errors     # of some queries"),
        ("page.md:4", "harness sweep ... gate=none,auto top_k=1,3"),
        ("page.md:13", "cp a b"),
    ]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Next:\n  harness ui\n  harness export run=1", ["harness ui", "harness export run=1"]),
        ("1. A gate: 0.2 more.\n   .venv/bin/harness run gate=auto", [".venv/bin/harness run gate=auto"]),
        ("  '/my venv/bin/harness' runs top=5", ["'/my venv/bin/harness' runs top=5"]),
        ("No run. Make one with `harness run`.", ["harness run"]),
        ("Give the folder that `harness testset draft` wrote.", []),
        ("`harness runs experiment_name=null` lists all.", ["harness runs experiment_name=null"]),
        ("None yet. Export one: harness export metric=mrr", ["harness export metric=mrr"]),
        ("c.bin cannot be read. Move it away, or set unreadable=skip.", ["harness prepare files=new unreadable=skip"]),
        ("Set files=other.", ["harness prepare files=other"]),
        ("\nharness prepare ...\n\nThe harness has learnt a rule.", []),
    ],
)
def test_the_hints_in_output(output, expected):
    assert [one.text for one in hints(output, "harness prepare files=new")] == expected


def test_hints_of_one_kind_add_the_same_keys_and_choices():
    of = "harness run tokenizer=word"
    assert Hint("harness run tokenizer=word gate=auto top_k=1", of).kind == "run gate=auto top_k"
    assert Hint("harness run gate=auto top_k=5 # slow", "harness run").kind == "run gate=auto top_k"


@pytest.mark.parametrize("text", ["model=NAME", "runs=[ID,ID]", "'runs=[A,B]'", "files='FOLDER/**/*'", "url=..."])
def test_placeholders_are_recognised(text):
    assert PLACEHOLDER.search(f"harness run {text}")


@pytest.mark.parametrize("text", ["files=data/KO_KR.txt", "query='...'", "path=/tmp/A1/B", "metric=map@3"])
def test_values_are_no_placeholders(text):
    assert not PLACEHOLDER.search(f"harness run {text}")


def test_more_than_the_base_packages_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_base.py"])
    assert check_base.main() == 2
    assert "more than the base packages: torch, huggingface_hub, pytest" in capsys.readouterr().err
