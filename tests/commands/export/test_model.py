"""The exported run as an MLflow model: it answers as the run did, and refuses what has changed."""

import http.client
import importlib.metadata
import json
import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow.pyfunc
import pytest
from logged_runs import told, with_store
from mlflow_server import free_port, started
from pandas import DataFrame

import harness as installed
from harness.commands.export import model
from harness.config import components
from harness.errors import BadInput
from harness.tracking.mlflow_tracker import MlflowTracker

RUN = ("run", "tokenizer=word", "retriever=hybrid_lexical", "gate=auto", "gate.folds=2", "gate.repeats=1",
       "experiment_name=e", "format=json")  # fmt: skip
EXPORT = ("export", "experiment_name=e", "model=true", "format=json")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory, fresh_database):
    """(folder with outputs/, JSON of the run, JSON of its export): one for the module, which changes none of it."""
    folder = with_store(tmp_path_factory.mktemp("shipped"), fresh_database)
    return folder, *told(folder, RUN, EXPORT)


@pytest.fixture(scope="module")
def client(shipped):
    tracker = MlflowTracker()
    tracker.connect(shipped[0] / "outputs")
    return tracker.client


@pytest.fixture(scope="module")
def logged(client, shipped):
    """The folder of the logged model."""
    model_id = shipped[2]["model"]["model_id"]
    return Path(client.get_logged_model(model_id).artifact_location.removeprefix("file://"))


@pytest.fixture
def package(logged, tmp_path):
    """A copy of the package, to be changed."""
    return shutil.copytree(logged / "artifacts" / "package", tmp_path / "package")


def conversations():
    rows = (Path(installed.__file__).parent / "sample" / "eval.jsonl").read_text("utf-8").splitlines()
    return [json.loads(row) for row in rows]


def predicted(run):
    lines = Path(run["files"]["predictions"]).read_text("utf-8").splitlines()
    return {str(row["eval_id"]): row for row in map(json.loads, lines)}


def assert_as_predicted(answer, row):
    assert [found["doc_id"] for found in answer["documents"]] == row["topk"]
    assert [round(found["score"], 6) for found in answer["documents"]] == [one["score"] for one in row["references"]]
    assert answer["retrieve"] == bool(row["topk"])


@pytest.mark.slow
def test_the_model_is_registered_and_answers_as_the_run(client, shipped, logged):
    """By MLflow's own loader, from the place that the alias leads to."""
    _, run, export = shipped
    told = export["model"]
    version = client.get_model_version_by_alias("e", "champion")
    assert (told["name"], told["version"], told["alias"]) == ("e", int(version.version), "champion")
    assert (version.run_id, version.source) == (run["run_id"], logged.as_uri())
    known = client.get_logged_model(told["model_id"])
    assert (str(known.status), known.source_run_id) == ("READY", run["run_id"])
    assert client.get_run(run["run_id"]).outputs.model_outputs[0].model_id == told["model_id"]
    loaded = mlflow.pyfunc.load_model(str(logged))
    rows = conversations()
    asked = DataFrame({"messages": [row["msg"] for row in rows], "query_id": [str(row["eval_id"]) for row in rows]})
    answers = loaded.predict(asked).to_dict("records")
    expected = predicted(run)
    assert [answer["query_id"] for answer in answers] == list(expected)
    for answer in answers:
        assert_as_predicted(answer, expected[answer["query_id"]])
    asked = next(row["standalone_query"] for row in expected.values() if row["topk"])
    [one] = loaded.predict(DataFrame({"query": [asked]})).to_dict("records")
    assert (one["query_id"], set(one["documents"][0])) == ("0", {"doc_id", "score", "title", "text"})


def test_what_is_logged_says_what_it_needs(shipped, logged):
    requirements = (logged / "requirements.txt").read_text("utf-8").splitlines()
    ours = {f"{name}=={importlib.metadata.version(name)}" for name in ("retrieval-harness", "mlflow")}
    assert ours <= {*requirements}
    assert not [line for line in requirements if "==" not in line or line.startswith(("torch", "transformers"))]
    [example] = json.loads((logged / "serving_input_example.json").read_text("utf-8"))["dataframe_split"]["data"]
    assert example[0] == predicted(shipped[1])[example[1]]["standalone_query"]
    assert not list(logged.rglob("*.pkl"))


@pytest.mark.local
def test_a_second_export_is_a_second_version(client, shipped, harness):
    """Of the name that is asked for, and the alias moves to it."""
    words = (*EXPORT, f"outputs={shipped[0] / 'outputs'}")
    made = [harness(*words, "model_name=search engine").json["model"] for _ in range(2)]
    before = f"version 1, run {shipped[1]['run_id']}"
    assert [(one["version"], one["before"]) for one in made] == [(1, None), (2, before)]
    assert int(client.get_model_version_by_alias("search engine", "champion").version) == 2
    assert "model_name='a/b' cannot name a model" in harness(*words, "model_name=a/b").refusal


def test_a_run_that_would_not_be_the_same_today_is_refused(harness, toy):
    """Its labels are not what the gate has learnt from, though documents and queries are."""
    words = ("dataset=contest", f"dataset.path={toy}", "tokenizer=word", "experiment_name=e", "format=json")
    assert harness("run", *words, "gate=auto").code == 0
    labels = toy / "qrels.jsonl"
    labels.write_text(labels.read_text("utf-8").replace('"d1": 1', '"d1": 2'), "utf-8")
    assert "would not be the same run today" in harness(*EXPORT).refusal
    assert not list(Path("outputs/submissions").glob("*.jsonl"))  # refused before anything is written


@pytest.mark.parametrize("name", ["config.yaml", "gate.json", "documents.jsonl", "scores.npy"])
def test_one_changed_byte_is_refused(package, name):
    changed = sorted(package.rglob(name))[-1]
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    before = {path: path.read_bytes() for path in package.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match=f"{name} has changed: its sha256 differs"):
        model.load_model(package)
    assert {path: path.read_bytes() for path in package.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("name", "why"), [("docs.npy", "is missing"), ("manifest.json", "is damaged")])
def test_what_is_missing_is_refused(package, name, why):
    sorted(package.rglob(name))[0].unlink()
    with pytest.raises(BadInput, match=f"{name} {why}"):
        model.load_model(package)


def test_other_packages_than_those_of_the_run_are_refused(package, monkeypatch):
    """The index's identity names what decides it: another version of rank_bm25 makes another index."""
    plain = components._installed
    other = lambda name, target: "9.9" if name == "rank_bm25" else plain(name, target)  # noqa: E731
    monkeypatch.setattr(components, "_installed", other)
    with pytest.raises(BadInput, match=r"packages\.rank_bm25='.*', now: '9\.9'"):
        model.load_model(package)


WRONG = {
    "no-row": ([], "There is no query"),
    "unknown": ([{"query": "달", "top_k": 3}], "The column 'top_k' is unknown. Known: query, messages, query_id"),
    "neither": ([{"query_id": "7"}], "row 0: give either `query`"),
    "null": ([{"query": "달"}, {"query": None}], "row 1: give either `query`"),
    "both": ([{"query": "달", "messages": [{"role": "user", "content": "달"}]}], "row 0: give either"),
    "empty": ([{"query": "달"}, {"query": " \t"}], "row 1: the query is empty"),
    "number": ([{"query": 5}], "row 0: query is 5, but must be text"),
    "text-for-messages": ([{"messages": "달"}], "row 0: messages is '달', but must be a list"),
    "no-turn": ([{"messages": []}], "row 0: messages has no user turn"),
    "no-content": ([{"messages": [{"role": "user"}]}], "row 0: content is missing"),
}


@pytest.fixture(scope="module")
def searcher(logged):
    return model.load_model(logged / "artifacts" / "package")


@pytest.mark.parametrize("name", WRONG)
def test_malformed_requests_are_refused_in_words(searcher, name):
    rows, expected = WRONG[name]
    with pytest.raises(BadInput) as refused:
        model.answer(searcher, DataFrame(rows))
    assert expected in str(refused.value)


def ask(connection, body):
    connection.request("POST", "/invocations", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.slow
def test_the_served_model_answers_requests_8_at_a_time_as_the_run(shipped):
    folder, run, export = shipped
    expected, rows, own = predicted(run), conversations(), threading.local()
    # MLflow starts `uvicorn` by name: it is found where an environment that is not activated keeps its commands.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    words = ["-m", "mlflow", "models", "serve", "-m", export["model"]["uri"], "--env-manager", "local"]
    store = f"sqlite:///{folder / 'outputs' / 'mlflow.db'}"

    def one(number):
        row = rows[number % len(rows)]
        own.connection = getattr(own, "connection", None) or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        asked = {"messages": row["msg"], "query_id": str(row["eval_id"])}
        return row, ask(own.connection, {"dataframe_records": [asked]})

    serving = started(folder, words, port := free_port(), MLFLOW_TRACKING_URI=store, PATH=path)
    with serving, ThreadPoolExecutor(8) as pool:
        for row, (status, answer) in pool.map(one, range(100)):
            assert status == 200, answer
            [found] = answer["predictions"]
            assert found["query_id"] == str(row["eval_id"])
            assert_as_predicted(found, expected[found["query_id"]])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for body in ([], {}, *({"dataframe_records": rows} for rows, _ in WRONG.values() if "top_k" not in str(rows))):
            status, answer = ask(connection, body)
            assert (status, bool(answer["message"])) == (400, True), body
        status, [found] = ask(connection, {"messages": rows[0]["msg"]})  # a conversation alone, as chat servers take it
        assert status == 200
        assert_as_predicted(found, expected[str(rows[0]["eval_id"])])
