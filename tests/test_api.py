"""The harness from Python: the same numbers and messages as the command line, and a process that stays as it was."""

import errno
import gc
import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.version import getbase
from logged_runs import RUN, WITHHELD
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.tracking import MlflowClient
from omegaconf.basecontainer import BaseContainer

import harness as package
from harness.commands.compare import compared_document
from harness.commands.run import run_document
from harness.config.command_list import COMMANDS
from harness.data.qrels import Qrels
from harness.measures.score_table import read_score_table
from harness.storage.typed import encoded
from harness.tracking import mlflow_client
from retrievers.base import Document, Query
from retrievers.lexical.bm25 import BM25

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram")
QUIET = (*TOY, "tracking=none")
LABELLED = package.Dataset(
    "made here",
    tuple(Document(doc_id, doc_id) for doc_id in ("d1", "d2", "d3")),
    tuple(Query.of(query_id, query_id) for query_id in ("7", "3", "5")),
    Qrels({"7": {"d3": 2, "d1": 1}, "3": {"d2": 1}, "5": {}}),
)
LISTS = {"7": ["d3", "d2"], "3": ["d1", "d2"], "5": []}
IN_A_NOTEBOOK = """
import json, sys
import harness

heavy = ("numpy", "hydra", "omegaconf", "mlflow", "pandas", "yaml", "harness.api")
light = [name for name in heavy if name in sys.modules]
import hydra
from omegaconf import OmegaConf

with hydra.initialize_config_dir(sys.argv[1], version_base="1.2"):
    mine = [hydra.compose("mine")]
    result = harness.run("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "tracking=none")
    mine.append(hydra.compose("mine", ["b=2"]))
    version = hydra.version.getbase()
print(json.dumps({
    "light": light,
    "mine": [OmegaConf.to_container(one, resolve=True) for one in mine],
    "version": str(version),
    "global": hydra.core.global_hydra.GlobalHydra.instance().is_initialized(),
    "imported": [name for name in ("mlflow", "torch", "pandas", "numba") if name in sys.modules],
    "metric": result.metrics["modified_map@3"],
}))
"""


@pytest.fixture
def folder(undrawn, tmp_path, monkeypatch, toy):
    """A working folder with the toy data, for calls that log nothing."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def data(folder):
    return package.load_dataset(*TOY)


def state():
    """What belongs to the process."""
    root = logging.getLogger()
    return {
        "arguments": [*sys.argv],
        "folder": Path.cwd(),
        "collector": (gc.get_threshold(), gc.isenabled()),
        "signals": [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)],
        "hook": sys.unraisablehook,
        "logging": ([*root.handlers], root.level),
        "environment": dict(os.environ),
        "hydra": (GlobalHydra.instance().hydra, HydraConfig.instance().cfg, getbase()),
        "resolvers": dict(BaseContainer._resolvers),
    }


@pytest.mark.slow
def test_the_import_is_light_and_another_use_of_hydra_goes_on(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "mine.yaml").write_text("a: ${oc.env:HOME}\nb: 1\n")
    command = [sys.executable, "-c", IN_A_NOTEBOOK, str(folder / "mine")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    home = os.environ["HOME"]
    assert json.loads(done.stdout) == {
        "light": [], "mine": [{"a": home, "b": 1}, {"a": home, "b": 2}], "version": "1.2", "global": False,
        "imported": [], "metric": 1.0,
    }  # fmt: skip


def test_every_name_is_there_and_no_other():
    assert dir(package) == sorted(package.__all__)  # no room of the package among them
    assert {name.replace(" ", "_") for name in COMMANDS} <= {*package.__all__}
    assert all(getattr(package, name).__doc__ for name in package.__all__)
    assert issubclass(package.BadInput, ValueError)
    with pytest.raises(AttributeError, match="no attribute 'rooms'"):
        package.rooms  # noqa: B018


def test_a_call_leaves_the_process_as_it_was(folder):
    package.run(*QUIET)
    before = state()
    package.run(*QUIET)
    package.search(*TOY, "query=달")
    with pytest.raises(package.BadInput):
        package.run("nonsense=1")
    assert state() == before


def test_an_experiment_is_the_same_by_command_and_by_python(harness, toy, request):
    words = (*TOY, "gate=score", "gate.threshold=0.5", "experiment_name=e")
    command = harness("run", *words, "format=json").json
    result = package.run(*words)
    apart = dict.fromkeys(("run_id", "files", "seconds", "best_before", "private_peeks"))
    assert encoded(run_document(result)) | apart == command | apart
    assert encoded(run_document(package.run(*words, "tracking=none")))["metrics"] == command["metrics"]
    tracker = request.getfixturevalue("tracker")
    by_command, by_python = (tracker.run(one) for one in (command["run_id"], result.run_id))
    differing = {"mlflow.runName", "harness.claim", "mlflow.user", "mlflow.source.name"}
    assert by_command.params == by_python.params
    assert by_command.tags["trial_key"] == by_python.tags["trial_key"] == result.trial_key
    assert by_command.tags["predictions.sha256"] == by_python.tags["predictions.sha256"] == result.predictions_sha256
    assert by_command.name == by_python.name == result.name
    assert {*by_command.tags} - differing == {*by_python.tags} - differing
    files = [Path(one) / "predictions.jsonl" for one in (command["files"]["folder"], result.folder)]
    assert files[0].read_bytes() == files[1].read_bytes()
    refused = harness("compare", "experiment_name=e").refusal  # a repeated configuration counts once
    assert "experiment 'e' has 1 distinct finished run with modified_map@3" in refused


def test_a_result_has_its_numbers_and_a_table_by_query(folder):
    result = package.run(*QUIET, "gate=auto", "gate.signals=[query_characters]", "run_name=<b>mine</b>")
    assert (result.run_id, result.experiment, result.name) == (None, "retrieval", "<b>mine</b>")
    assert result.metrics["modified_map@3"] == result.scores.summary["modified_map@3"].mean
    assert result.out_of_fold["modified_map@3"] == result.objective.value
    assert sum(result.losses.values()) == pytest.approx(1 - result.metrics["modified_map@3"])
    assert result.counts["scored"] == result.gate["learnt_from"]["queries"] == 3
    assert "not a mean of queries" in result.absent["abstention_f1"]
    assert "abstention_f1" not in result.intervals
    assert list(result.predictions.to_dict()) == ["7", "3", "5"]
    written = read_score_table(result.folder / "scores.csv")
    table = result.per_query
    assert tuple(table.index) == written.query_ids
    assert table["needs"].tolist() == written.needs.tolist()
    for name, values in (written.values | {f"oof/{name}": of for name, of in written.oof.items()}).items():
        np.testing.assert_array_equal(table[name].to_numpy(), values)
    assert repr(result).splitlines()[0] == "<b>mine</b> (not in MLflow, experiment 'retrieval')"
    assert "modified_map@3 1.0000 (1.000 – 1.000 on 3 queries, out of fold)" in repr(result)
    shown = result._repr_html_()
    assert "<b>mine" not in shown
    for expected in ("&lt;b&gt;mine&lt;/b&gt;", "<td>oof/modified_map@3</td>", "not at the top of the documents shown"):
        assert expected in shown


def test_without_labels_there_are_documents_and_no_scores(folder):
    (folder / "toy" / "qrels.jsonl").unlink()
    result = package.run(*QUIET)
    assert (result.scores, result.held_out, result.objective) == (None, None, None)
    assert result.metrics == result.out_of_fold == result.losses == result.intervals == result.absent == {}
    assert result.per_query.empty
    assert len(result.predictions.query_ids) == 3
    for shown in (repr(result), result._repr_html_()):
        assert "No labels: nothing is scored." in shown
    with pytest.raises(package.BadInput, match="no labels to score with"):
        package.evaluate(LISTS, package.load_dataset(*TOY))


def test_a_search_has_documents_and_the_gates_decision(harness, toy):
    words = (*TOY, "query=지구 <달>의 모양", "top_k=2", "gate=score", "gate.threshold=99")
    hits = package.search(*words)
    assert encoded(hits) == harness("search", *words, "format=json").json
    assert "withholds the documents." in harness("search", *words).text
    assert [hit.doc_id for hit in hits.documents] == ["d3", "d1"]
    assert repr(hits).splitlines()[1].startswith("1. d3  ")
    assert repr(hits).endswith("withholds the documents.")
    assert "&lt;달&gt;" in hits._repr_html_()
    assert "<td>d3</td>" in hits._repr_html_()


def test_a_dataset_is_loaded_and_shown_short(folder, data):
    assert [document.doc_id for document in data.documents] == ["d1", "d2", "d3"]
    assert repr(data) == ("contest: 3 documents, 3 queries, 3 labelled\n1 of 3 labelled queries need no retrieval.")
    assert data._repr_html_().startswith("<div><p><b>contest</b>: 3 documents, 3 queries, 3 labelled</p>")


@pytest.mark.slow
def test_runs_are_compared_by_result_by_id_and_by_experiment(harness, toy):
    place = ("experiment_name=e", "outputs=elsewhere")
    worse = package.run(*TOY, *place, "gate=score", "gate.threshold=99", "run_name=<b>worse</b>")
    better = package.run(*TOY, *place)
    assert worse.run_id == better.best_before.run_id
    compared = package.compare(better, worse)  # looks for them where they are
    document = compared_document(compared)
    assert [run.run.run_id for run in compared.comparison.runs] == [better.run_id, worse.run_id]
    assert compared.verdicts[0].startswith("No difference between A and B can be told on 3 queries")
    row = compared.differences.set_index("measure").loc["modified_map@3"]
    assert (row["mean"], row["wins"], row["p"]) == (pytest.approx(2 / 3), 2, 0.5)
    assert json.loads((compared.folder / "comparison.json").read_text("utf-8")) == document
    assert f"A: {better.run_id[:8]}" in repr(compared)
    assert "&lt;b&gt;worse&lt;/b&gt;" in compared._repr_html_()
    assert compared.table("latex") == harness("compare", *place, "format=latex").out
    with pytest.raises(package.BadInput, match="style is 'html': choose one of markdown, latex, csv"):
        compared.table("html")
    by_id, ranked = package.compare(better.run_id[:12], worse.run_id, *place), package.compare(*place, "top=2")
    command = harness("compare", *place, "format=json").json
    for other in (compared_document(by_id), compared_document(ranked), command):
        assert other["differences"] == document["differences"]
    assert {one["run_id"] for one in package.power(worse, better).runs} == {worse.run_id, better.run_id}
    assert package.reproduce(better, "verify_only=true").run_id == better.run_id
    with pytest.raises(package.BadInput, match="is about one run"):
        package.reproduce(worse, better)
    with pytest.raises(package.BadInput, match="takes no runs"):
        package.prepare(worse)


SAID = [  # a command in Python, its words, what is there of its JSON document
    ("runs", ["experiment_name=e"], "groups"),
    ("board", ["experiment_name=e"], "private_peeks"),
    ("advise", ["experiment_name=e"], "advice"),
    ("power", ["experiment_name=e"], "queries_needed"),
    ("sweep", [*TOY, "top_k=1,2", "experiment_name=e", "dry_run=true"], "sweep_id"),
    ("score", [*TOY[:2], "predictions=p.jsonl", "tracking=none"], "summary"),
    ("prepare", ["files=text.txt"], "documents"),
    ("doctor_cache", ["store.path=empty"], "entries"),
    ("doctor_sync", [], "sent"),
    ("doctor_warm", [], "compiled"),
    ("export", ["experiment_name=e", "submission=best.jsonl"], "provenance"),
    ("export_record", ["submission=best.jsonl", "public=0.5"], "drift"),
    ("export_history", [], "submissions"),
    ("reproduce", ["experiment_name=e", "verify_only=true"], "reproduced"),
    ("init", TOY, "defaults"),
]
CHANGING = {"seconds", "files", "private_peeks", "time", "written", "new", "forecast"}


def steady(document):
    """A document without what differs from one call to the next."""
    if isinstance(document, dict):
        return {name: steady(one) for name, one in document.items() if name not in CHANGING}
    return [*map(steady, document)] if isinstance(document, list) else document


@pytest.mark.slow
def test_each_command_says_in_python_what_it_says_as_json(harness, logged, capsys, tmp_path):
    logged(WITHHELD, RUN)
    (tmp_path / "text.txt").write_text("달은 지구의 위성이다.")
    (tmp_path / "p.jsonl").write_text(json.dumps({"eval_id": 7, "topk": ["d3"]}) + "\n")
    for name, words, key in SAID:
        done = harness(name.replace("_", " "), *words, "format=json")
        result = getattr(package, name)(*words)
        assert capsys.readouterr().out == "", name
        assert steady(dict(result)) == steady(done.json), name
        assert getattr(result, key) == result[key]
        assert result.failure is None
        assert len(repr(result)) > 10
        assert result._repr_html_().startswith(("<div>", "<pre>"))
        with pytest.raises(AttributeError, match="has no 'nothing'"):
            result.nothing  # noqa: B018


def test_harness_yaml_counts(folder, capsys):
    (folder / "harness.yaml").write_text("dataset: contest\ndataset.path: toy\ntokenizer: char_ngram\n")
    assert package.load_dataset().name == "contest"
    assert capsys.readouterr().err == "Defaults: harness.yaml\n"


def test_threads_may_call_and_get_their_own(folder):
    """Signals can be set in the main thread alone, and Hydra's state is one for all threads."""
    call = lambda name: package.run(*QUIET, f"run_name={name}", f"outputs=of_{name}")  # noqa: E731
    with ThreadPoolExecutor(3) as pool:
        found = [*pool.map(call, "abc")]
    assert [(one.name, one.folder.parts[-3]) for one in found] == [(name, f"of_{name}") for name in "abc"]


def test_an_interruption_ends_the_run_and_reaches_the_caller(folder, monkeypatch):
    def interrupt(self, queries, k):
        raise KeyboardInterrupt

    monkeypatch.setattr(BM25, "search", interrupt)
    with pytest.raises(KeyboardInterrupt):
        package.run(*QUIET, "retriever.bm25.k1=1.236")
    assert [one.name.rpartition(".")[2] for one in (folder / "outputs" / "runs").iterdir()] == ["killed"]


def test_a_failure_has_the_message_of_the_command(harness, toy, monkeypatch):
    def full(self, documents, folder):
        raise OSError(errno.ENOSPC, "No space left on device", "index")

    monkeypatch.setattr(BM25, "index", full)
    words = (*QUIET, "retriever.bm25.k1=1.237")
    done = harness("run", *words)
    with pytest.raises(package.Failed, match="index: No space left on device") as failed:
        package.run(*words)
    assert (done.code, done.err.strip()) == (1, f"harness run failed: {failed.value}")


@pytest.mark.slow
def test_a_run_whose_server_is_down_is_returned_and_says_where_it_waits(harness, toy, monkeypatch):
    def down(self, *arguments, **named):
        raise MlflowException("API request to http://... failed", TEMPORARILY_UNAVAILABLE)

    monkeypatch.setattr(mlflow_client, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(MlflowClient, "create_run", down)
    result = package.run(*TOY)
    assert (result.run_id, result.unsent.suffix) == (None, ".unsent")
    assert result.metrics["modified_map@3"] == 1.0
    with pytest.raises(package.BadInput, match="is not in MLflow"):
        package.compare(result, result)


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("run", ["retreiver=bm25"], "retreiver is unknown here. Did you mean 'retriever'?"),
        ("run", ["top_k=0"], "top_k=0 is too small: the minimum is 1."),
        ("run", ["depth=1"], "depth=1 is less than top_k=3"),
        ("run", ["--retriever=bm25"], "write options without dashes, as retriever=bm25."),
        ("run", ["gate=nix"], "gate=nix: there is no such choice. Known: auto,"),
        ("run", ["retriever=bm25,dense"], "Ambiguous value for argument"),
        ("run", ["retriever.bm25._target_=os.system"], "os.system"),
        ("run", ["--config-dir=nowhere", "top_k=1"], "nowhere"),
        ("search", ["query="], "query is empty. Give it a value"),
        ("compare", ["runs=[0123456789,abcdef]"], "0123456789"),
        ("compare", ["tracking=none"], "tracking=none keeps no runs to compare."),
        ("doctor", ["top_k=1"], "top_k is unknown here"),
        ("testset draft", ["testset=ts"], "model is missing. Name the language model"),
        ("testset pool", ["testset=ts"], "ts"),
        ("testset audit", ["testset=ts"], "ts"),
    ],
)
def test_bad_input_has_the_message_of_the_command(harness, toy, command, words, message):
    said = harness(command, *words).refusal
    with pytest.raises(package.BadInput) as refused:
        getattr(package, command.replace(" ", "_"))(*words)
    assert message in str(refused.value)
    assert said.strip() == str(refused.value).strip()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([["top_k=1"]], "is a list. Give each override as a text: 'KEY=VALUE'."),
        ([3], "3 is a int."),
        (["--multirun", "top_k=1"], "--multirun is for the command line."),
        (["--cfg=job"], "--cfg=job is for the command line."),
        (["hydra.verbose=true"], "hydra.verbose=true is for the command line."),
    ],
)
def test_what_only_a_command_line_has_is_refused(folder, words, message):
    with pytest.raises(package.BadInput, match=message):
        package.run(*words)


def finding(pairs):
    """A search function that finds the same for each query."""
    return lambda queries, k: [pairs for _ in queries]


def table(query_ids, **columns):
    return pandas.DataFrame({"query_id": query_ids, **columns})


def two_words(queries, k):
    """Ranks documents of the toy data by the letters that they share with the query."""
    texts = {one.doc_id: one.text for one in package.load_dataset(*TOY).documents}
    shared = [{doc_id: float(len({*query} & {*text})) for doc_id, text in texts.items()} for query in queries]
    return [sorted(one.items(), key=lambda pair: (-pair[1], pair[0]))[:k] for one in shared]


def test_lists_score_as_their_file_does_by_command(harness, toy, data, tmp_path):
    rows = [{"eval_id": int(query_id), "topk": docs} for query_id, docs in LISTS.items()]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = harness("score", "predictions=p.jsonl", *TOY[:2], "tracking=none", "format=json").json
    for given in (LISTS, {int(key): np.array(docs, str) for key, docs in LISTS.items()}, "p.jsonl", Path("p.jsonl")):
        found = package.evaluate(given, data)
        assert {name: encoded(one.mean) for name, one in found.scores.summary.items()} == done["metrics"]
        assert (found.losses, found.counts) == (done["losses"], done["counts"])
        assert found.absent["recall@10"] == "the longest list has 2 documents"
    # Query 7: d3 of two relevant first, (1/1)/2; query 3: the only relevant one second; 5: rightly nothing.
    assert package.evaluate(LISTS, data, ["map@2"]).metrics == {"map@2": (1 / 2 + 1 / 2) / 2}


def test_scores_are_ordered_as_trec_eval_orders_a_file(harness, toy, data, tmp_path):
    scores = {"7": {"d1": 1.0, "d2": 1.0, "d3": 1.0 + 1e-9}, "3": {"d2": 0.5}}  # one tie in single precision
    rows = [(q, d, s) for q, row in scores.items() for d, s in row.items()]
    (tmp_path / "run").write_text("".join(f"{q} Q0 {d} 1 {s!r} x\n" for q, d, s in rows))
    table = pandas.DataFrame(rows, columns=["query_id", "doc_id", "score"])
    words = ("predictions=run", *TOY[:2], "tracking=none", "missing=zero", "format=json")
    done = harness("score", *words).json
    for given in (scores, table, "run"):
        found = package.evaluate(given, data, missing="zero")
        assert {name: encoded(one.mean) for name, one in found.scores.summary.items()} == done["metrics"]
        assert (found.scores.missing, found.counts["missing"]) == (["5"], 1)
        assert found.metrics["recall@100"] == 1.0  # a run is whole


def test_a_function_scores_as_the_lists_that_it_finds(data):
    found = package.evaluate(two_words, data, ["ndcg@3", "mrr@3", "recall@10"])
    lists = dict(zip(("7", "3", "5"), two_words([query.text for query in data.queries], 100), strict=True))
    same = package.evaluate({key: [doc for doc, _ in one] for key, one in lists.items()}, data, ["ndcg@3", "mrr@3"])
    assert found.metrics == same.metrics | {"recall@10": 1.0}  # it was asked for 100, and found no more than 3
    assert found.objective.name == "ndcg@3"
    cut = package.evaluate(two_words, data, ["recall@1", "recall@10"], k=1)
    assert (cut.metrics["recall@10"], cut.absent["recall@10"]) == (None, "the longest list has 1 document")


def test_a_function_scores_as_the_retriever_that_calls_it(folder, data):
    """A tie stays as it is given: d3 before d1."""
    pairs = [("d3", 1.0), ("d1", 1.0), ("d2", 0.5)]
    (folder / "tied_search.py").write_text(f"def search(queries, k):\n    return [{pairs}[:k] for _ in queries]\n")
    words = ("retriever.python.function=tied_search:search", "plugins.allow=[tied_search]")
    run = package.run(*QUIET, "retriever=python", *words)
    found = package.evaluate(finding(pairs), data, ["modified_map@3", "mrr@3", "recall@3"])
    assert found.metrics == {name: run.metrics[name] for name in found.metrics}


def test_the_lists_of_a_run_score_as_the_run(folder, data):
    result = package.run(*QUIET)
    found = package.evaluate(result.predictions, data, ["modified_map@3", "hit@1"])
    assert found.metrics == {name: result.metrics[name] for name in ("modified_map@3", "hit@1")}
    first, *others = repr(found).splitlines()
    assert first == "modified_map@3 1.0000 (1.000 – 1.000 on 3 queries, in sample)"
    assert others == ["3 labelled queries scored, 1 of them need no retrieval.", "modified_map@3 1.0000, hit@1 1.0000"]


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ({}, {}, "predictions are empty"),
        (3, {}, "predictions are 3. Give {query_id: "),
        ("nowhere.jsonl", {}, "nowhere.jsonl"),
        ({"7": "d3"}, {}, "predictions['7']: 'd3' is not a list."),
        ({"7": {"d3"}}, {}, "predictions['7']: {'d3'} is not a list."),
        ({"7": [None]}, {}, "a document id is None, but an id must be"),
        ({1.5: ["d3"]}, {}, "a query id is 1.5, but an id must be"),
        ({7: ["d3"], "7": ["d1"]}, {}, "query '7' is there twice"),
        ({"7": {"d3": float("nan")}}, {}, "predictions['7']: score 'nan' is not a finite number."),
        ({"7": {"d3": "1.0"}}, {}, "score '1.0' is not a finite number."),
        ({"7": {"d3": 1.0}, "3": ["d2"]}, {}, "Give all in the same form."),
        ({"8": ["d3"]}, {}, "No predicted query is labelled"),
        (table(["7"], docno=["d3"]), {}, "no column doc_id and no column score, only query_id, docno"),
        (table([7, 7], doc_id=["d3"] * 2, score=[2, 1]), {}, "document 'd3' twice"),
        (lambda queries: [], {}, "<lambda> cannot be called with texts and k (too many positional arguments)."),
        (lambda queries, k: None, {}, "<lambda> returned None: return a list with one list of pairs for each query."),
        (lambda queries, k: [[]], {}, "<lambda> returned 1 lists for 3 queries"),
        (finding(["d1"]), {}, "'d1' is not a (doc_id, score) pair."),
        (finding([("d1", 1.0), ("d1", 0.5)]), {}, "document 'd1' occurs twice."),
        (finding([("d1", float("inf"))]), {}, "document 'd1' scores inf, not a finite number."),
        (finding([("d9", 1.0)]), {}, "the dataset has no document 'd9'."),
        (finding([("d1", 1.0), ("d2", 0.5)]), {"k": 1}, "2 documents, but k is 1."),
        (LISTS, {"metrics": ["ndgc@10"]}, "ndgc@10"),
        (LISTS, {"metrics": "map"}, "metrics='map' is not a list of text or null."),
        (LISTS, {"metrics": []}, "metrics is empty."),
        (LISTS, {"missing": "nil"}, "missing='nil' is not one of skip, zero."),
        (LISTS, {"k": 0}, "k=0 is too small: the minimum is 1."),
        (LISTS, {"dataset": "contest"}, "dataset is 'contest'. Give a result of harness.load_dataset."),
    ],
)
def test_bad_predictions_are_refused(tmp_path, monkeypatch, given, named, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(package.BadInput) as refused:
        package.evaluate(given, **{"dataset": LABELLED} | named)
    assert message in str(refused.value)


def test_an_error_inside_the_function_is_the_callers_own():
    with pytest.raises(ZeroDivisionError):
        package.evaluate(lambda queries, k: 1 // 0, LABELLED)


def test_labels_alone_suffice_for_lists(harness, tmp_path):
    (tmp_path / "qrels").write_text("1 0 a 1\n1 0 b 0\n2 0 c 2\n")
    (tmp_path / "run").write_text("1 Q0 b 1 2.0 x\n1 Q0 a 2 1.0 x\n2 Q0 c 1 3.0 x\n")
    labels = package.load_dataset("dataset=trec", "dataset.qrels=qrels")
    assert repr(labels) == "trec: 0 documents, 0 queries, 2 labelled"
    assert package.evaluate("run", labels, ["mrr"]).metrics == {"mrr": 0.75}  # second, and first
    with pytest.raises(package.BadInput, match="The dataset has only labels"):
        package.evaluate(two_words, labels)
