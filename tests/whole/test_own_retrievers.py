"""The same experiment by an entry point, a function of one's own and a file gives the same predictions."""

import sys

import plugin_wheels
import pytest

from harness import api
from harness.config import plugins
from harness.errors import BadInput

FUNCTION = """
from pathlib import Path
import json

LETTERS = {}
for line in (Path(__file__).parent / "toy" / "documents.jsonl").read_text().splitlines():
    row = json.loads(line)
    LETTERS[row["docid"]] = set(row["content"])


def search(queries, k):
    found = []
    for query in queries:
        letters = set(query) - {" "}
        scored = [(doc_id, len(letters & other)) for doc_id, other in LETTERS.items() if letters & other]
        found.append(sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k])
    return found
"""
TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json", "experiment_name=e")
MATE = "7 Q0 d1 1 2 x\n3 Q0 d2 1 2 x\n5 Q0 d3 1 2 x\n"
ALLOWED = "plugins.allow=[shared_letters]"
BY_FUNCTION = ("retriever=python", "retriever.python.function=shared_letters:search", ALLOWED)


@pytest.fixture
def made(tmp_path, toy, monkeypatch):
    """A plug-in and a module that rank alike."""
    plugin_wheels.unpack(plugin_wheels.wheel(tmp_path), tmp_path / "site")
    (tmp_path / "shared_letters.py").write_text(FUNCTION, "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugins.installed_plugins.cache_clear()
    yield
    for name in ("shared_letters", "overlap_search", "overlap_search.retriever"):
        sys.modules.pop(name, None)
    monkeypatch.undo()
    plugins.installed_plugins.cache_clear()


@pytest.mark.slow
def test_equal_predictions_by_every_door(made, harness, tracker, tmp_path):
    first = harness("run", *TOY, "retriever=overlap").json
    rows = first["files"]["predictions"]
    by_file = (BY_FILE[0], f"retriever.file.path={rows}", "depth=3")
    runs = [first, harness("run", *TOY, *BY_FUNCTION).json, harness("run", *TOY, *by_file).json]
    runs.append({"run_id": api.run(*TOY, *BY_FUNCTION).run_id})
    with pytest.raises(BadInput, match=r"add plugins\.allow=\[shared_letters\]"):
        api.run(*TOY, *BY_FUNCTION[:2])
    hashes = {tracker.run(run["run_id"]).tags["predictions.sha256"] for run in runs}
    assert len(hashes) == 1
    compared = harness("compare", f"runs=[{','.join(run['run_id'] for run in runs[:3])}]", "format=json").json
    assert compared


BY_FILE = ("retriever=file", "retriever.file.path=mate.trec")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("retriever=overlap",), BY_FUNCTION, ("retriever=bm25",), BY_FILE])
def test_a_retriever_that_keeps_the_contract_is_told_so(made, harness, words, tmp_path, monkeypatch):
    (tmp_path / "mate.trec").write_text(MATE)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    done = harness("doctor", "dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json", *words)
    found = [one for one in done.json["findings"] if one["about"].startswith("retriever.")]
    rules = 7 if words is BY_FILE else 9
    assert len(found) == rules + (words == ("retriever=bm25",)), "a file answers no odd queries; BM25 can be cut"
    assert {one["state"] for one in found} == {"ok"}, found
    assert ("plug-in overlap (overlap-search 1.0)", "retriever=overlap") in [
        (one["about"], one["said"]) for one in done.json["findings"]
    ]


BREAKS = [
    ("scored = [", "import random\n        scored = [(random.choice(sorted(LETTERS)), 1)] or [", "each search and"),
    ("(-pair[1], pair[0]))[:k]", "(pair[1] if k < 5 else -pair[1]))[:k]", "a smaller k gives the first of them"),
    ("for query in queries:", "for query in sorted(queries)[::-1]:", "do not depend on the other queries"),
    ("    found = []", "    found = []\n    if '' in queries: raise ValueError('empty')", "queries without a word"),
    ("return found", "return found[:1]", "each query has a row"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "rule"), BREAKS)
def test_a_broken_rule_is_named(made, harness, tmp_path, monkeypatch, before, after, rule):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    text = FUNCTION.replace(before, after)
    assert text != FUNCTION
    (tmp_path / "shared_letters.py").write_text(text)
    done = harness("doctor", "dataset=contest", "dataset.path=toy", "tokenizer=word", *BY_FUNCTION)
    broken = [line for line in done.out.splitlines() if line.startswith("error")]
    assert done.code == 1, done.out
    assert any(rule in line for line in broken), done.out


@pytest.mark.slow
def test_a_plugin_that_returns_what_it_must_not_fails_its_run_and_the_contract(made, harness, tmp_path):
    module = tmp_path / "site" / "overlap_search" / "retriever.py"
    module.write_text(module.read_text().replace("query.query_id]", "query.query_id + 'x']"))
    done = harness("run", *TOY, "retriever=overlap", "tracking=none", "store.path=cache")  # where no ranking is yet
    assert done.code == 1
    assert "retriever.overlap returned rows that do not match the queries" in done.err
    assert "Traceback" not in done.err
    done = harness("doctor", "dataset=contest", "dataset.path=toy", "tokenizer=word", "retriever=overlap")
    assert done.code == 1
    assert "each query has a row of documents of the dataset" in done.out


def test_doctor_names_broken_plugins(made, harness, tmp_path):
    (tmp_path / "site" / "overlap_search" / "retriever.py").write_text("import nothing_like_it")
    done = harness("doctor")
    assert done.code == 1
    assert "error    plug-in overlap (overlap-search 1.0): The plug-in overlap" in done.out
    assert "No module named 'nothing_like_it'" in done.out
    assert harness("run", *TOY, "tracking=none").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (BY_FUNCTION, "retriever.python calls your own function. A model cannot contain that function"),
        (BY_FILE, "A model answers new queries, but retriever.file"),
    ],
)
def test_no_model_is_made_of_what_it_cannot_carry(made, harness, tmp_path, words, message):
    (tmp_path / "mate.trec").write_text(MATE)
    assert harness("run", *TOY, *words).code == 0
    done = harness("export", "experiment_name=e", "model=true", "submission=s.csv")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "s.csv").exists()
