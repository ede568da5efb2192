"""`harness compare` and `harness power` straight from files: the numbers of scored runs, and nothing logged."""

import json
import re

import pytest

LABELS = ("dataset=trec", "dataset.qrels=qrels.txt")
QUERIES = 24


@pytest.fixture
def files(tmp_path):
    """a.run finds the relevant document first on all queries, b.run second on the first twelve."""

    def written(name, second, queries=QUERIES):
        lists = [[f"d{n}", f"x{n}"][:: -1 if n < second else 1] for n in range(queries)]
        lines = (
            f"q{n} Q0 {doc} {rank} {9 - rank} t\n" for n, docs in enumerate(lists) for rank, doc in enumerate(docs)
        )
        (tmp_path / name).write_text("".join(lines))

    (tmp_path / "qrels.txt").write_text("".join(f"q{n} 0 d{n} 1\nq{n} 0 x{n} 0\n" for n in range(QUERIES)))
    written("a.run", 0)
    written("b.run", 12)
    written("part.run", 0, 20)
    return tmp_path


FILES = "runs=[a.run,b.run]"


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["map", "mrr"])
def test_files_compare_as_runs_that_were_scored_from_them(harness, files, tmp_path, measure):
    words = (*LABELS, f"objective={measure}", "experiment_name=logged", "format=json")
    ids = [harness("score", f"predictions={name}", *words).json["run_id"] for name in ("a.run", "b.run")]
    runs, asked = f"runs=[{','.join(ids)}]", (FILES, *LABELS, f"metric={measure}")
    before = sorted(tmp_path.rglob("outputs/artifacts/**/scores.csv"))
    of_files = harness("compare", *asked, "format=json").json
    assert sorted(tmp_path.rglob("outputs/artifacts/**/scores.csv")) == before
    of_runs = harness("compare", runs, "format=json").json
    for part in ("metric", "queries", "verdicts", "notes", "differences", "tests", "splits", "changed", "shake_up"):
        assert of_files[part] == of_runs[part], part
    assert (of_files["metric"], of_files["run_id"], of_files["experiment"]) == (measure, None, None)
    assert [run["name"] for run in of_files["runs"]] == ["a.run", "b.run"]
    test = next(one for one in of_files["tests"] if one["measure"] == measure)
    assert test["p"] == pytest.approx(2 / 2**12)
    power, of_runs = (harness("power", *words, "format=json").json for words in (asked, (runs,)))
    assert power | {"runs": None} == of_runs | {"runs": None}
    said = f"harness compare metric={measure} dataset=trec dataset.qrels=qrels.txt 'runs=[a.run,b.run]'"
    assert said in harness("power", *asked).out


@pytest.mark.parametrize(("words", "said"), [
    ((FILES,), "say which labels score them, such as dataset=trec"),
    (("runs=[a.run,0123abcd]", *LABELS), r"files \(a.run\) and logged runs \(0123abcd\). Name only files or only runs"),
    (("runs=[a.run,c.run]", *LABELS), "c.run: there is no such file. Did you mean"),
    (("runs=[a.run,qrels.txt]", *LABELS), "qrels.txt:1: 4 fields. A TREC run has six"),
    ((FILES, "dataset=trec", "dataset.qrels=gone.txt"), "gone.txt"),
    (("runs=[a.run,part.run]", *LABELS), "scored on different queries: 4 are in only one of the runs: .*missing=zero"),
    (("runs=[a.run,a.run]", *LABELS), "twice"),
    ((FILES, *LABELS, "task=answers"), "a text task needs logged runs"),
    (("runs=[0123abcd,4567abcd]", *LABELS), "dataset=trec dataset.qrels=qrels.txt: this says how files are scored"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused(harness, files, words, said):
    done = harness("compare", *words)
    assert done.code == 2
    assert re.search(said, done.err)


def test_any_measure_of_files_is_compared_and_missing_lists_count_as_wrong_on_request(harness, files):
    assert harness("compare", FILES, *LABELS, "metric=ndcg@7", "format=json").json["metric"] == "ndcg@7"
    found = harness("compare", "runs=[a.run,part.run]", *LABELS, "missing=zero", "metric=mrr", "format=json").json
    assert next(one["wins"] for one in found["differences"] if one["measure"] == "mrr") == 4


@pytest.mark.parametrize(("base", "new", "code"), [("a.run", "b.run", 1), ("b.run", "a.run", 0), ("a.run", "c.run", 0)])
def test_a_gate_fails_if_the_second_run_is_told_to_be_worse(harness, files, base, new, code):
    (files / "c.run").write_text((files / "a.run").read_text())
    words = ("compare", f"runs=[{base},{new}]", *LABELS, "metric=mrr", "format=json")
    plain, done = harness(*words), harness(*words, "fail_if=worse")
    assert (plain.code, done.code) == (0, code)
    said = re.search(rf"\({new}\) is worse than \w+ \({base}\) in mrr \(fail_if=worse\)\.", done.err)
    assert bool(said) == bool(code)
    assert json.loads(done.out) | {"files": None} == plain.json | {"files": None}
