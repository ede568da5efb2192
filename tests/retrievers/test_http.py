"""The retriever that asks a search service, against imitations of several products, with and without faults."""

import json
import math
import socket
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from search_server import DIALECTS, Reply, SearchServer

from harness.config import components
from harness.config.places import conf_folder
from harness.errors import BadInput, Failed
from retrievers.base import Document, Query
from retrievers.external import http_client
from retrievers.external.http import (
    HttpRetriever,
    JsonPath,
    Missing,
    _latency,
    fill_address,
    fill_template,
    names_in,
)
from retrievers.external.http_client import FailedAttempt, HttpReply
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Word
from retrievers.testing import check_retriever

BODY = {"query": "{query}", "k": "{k}"}
PLAIN = {"ids": "results[*].id", "scores": "results[*].score", "body": BODY}
CORPUS = [Document("7", "seven"), *(Document(f"d{i}", f"text {i}") for i in range(4))]
HITS = [("d3", 2.5), ("d1", 1.0)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)


def service(hits=HITS, fault=lambda asked: None, dialect="fastapi"):
    return SearchServer(hits if callable(hits) else lambda query, k: hits[:k], dialect, fault)


def retriever(url, folder, **more):
    made = HttpRetriever(url, **PLAIN | {"timeout": 5.0, "retries": 1} | more)
    folder.mkdir(exist_ok=True)
    made.index(CORPUS, folder)
    return made


def search(server, folder, *texts, k=3, **more):
    queries = [Query.of(f"q{i}", text) for i, text in enumerate(texts or ("a",))]
    return retriever(server.url, folder / "index", **more).search(queries, k)


@pytest.mark.slow
def test_the_contract(tmp_path):
    """The service searches with BM25 the documents that the retriever has indexed."""
    lock, engine = threading.Lock(), BM25(Word())

    def find(text, k):
        with lock:
            return engine.search([Query.of("q", text)], k).row(0)

    class Remote(HttpRetriever):
        def index(self, documents, folder):
            (engine_folder := folder / "engine").mkdir()
            engine.index(documents, engine_folder)
            super().index(documents, folder)

        def load(self, folder):
            engine.load(folder / "engine")
            super().load(folder)

    with service(find) as server:
        check_retriever(lambda: Remote(server.url, **PLAIN), tmp_path)


def encoder(learns=False):
    """An encoder of two dimensions: the number of characters, and one."""
    vectors = lambda texts, *_: np.array([[len(text), 1] for text in texts], np.float32)  # noqa: E731
    return SimpleNamespace(learns=learns, encode_queries=vectors)


@pytest.mark.parametrize("choice", DIALECTS)
def test_each_product_is_understood(choice, tmp_path):
    """Quotation marks, braces and Korean arrive unchanged; so do ids and scores; and a reply may be empty."""
    content = (conf_folder() / "retriever" / f"{choice}.yaml").read_text("utf-8")
    arguments = components.arguments(yaml.safe_load(content.replace("${encoder}", "null"))[choice])
    arguments.pop("url")
    vector = "{vector}" in str(arguments["body"])
    texts = ['달 "a\\b" {k} {query}\n', "none"]
    found = [[float(len(text)), 1.0] for text in texts] if vector else texts
    with SearchServer(lambda query, k: [] if query == found[1] else HITS, choice) as server:
        made = retriever(server.url, tmp_path / "index", **arguments | {"encoder": encoder() if vector else None})
        ranking = made.search([Query.of("q", texts[0]), Query.of("r", texts[1])], 2)
    assert ranking.to_dict() == {"q": dict(HITS), "r": {}}
    assert sorted(map(str, (asked.query for asked in server.asked))) == sorted(map(str, found))
    assert {asked.k for asked in server.asked} == {2}


def test_a_get_with_a_header_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ES_AUTH", "ApiKey abc123")
    arguments = {"body": None, "method": "GET", "headers_env": {"Authorization": "ES_AUTH"}}
    with service() as server:
        made = retriever(f"{server.url}?query={{query}}&k={{k}}", tmp_path / "index", **arguments)
        assert made.search([Query.of("q", "물은 a&b?")], 3).row(0) == HITS
    [asked] = server.asked
    assert (asked.method, asked.query, asked.k, asked.body) == ("GET", "물은 a&b?", 3, None)
    assert asked.headers["Authorization"] == "ApiKey abc123"


@pytest.mark.parametrize(
    ("hits", "arguments", "expected"),
    [
        ([("d1", 1), ("d3", 2.0)], {}, [("d3", 2.0), ("d1", 1.0)]),  # ordered by score; one reply alone may ascend
        ([("d3", 1.0), ("d1", 1.0)], {}, [("d1", 1.0), ("d3", 1.0)]),  # ties by id
        ([("d3", "7.5"), ("d1", "-1e3")], {}, [("d3", 7.5), ("d1", -1000.0)]),  # Weaviate writes text
        ([("d3", 0.1), ("d1", 0.9)], {"scores": None}, [("d3", 1.0), ("d1", 0.5)]),
        ([("d3", 3.0), ("d1", 2.0), ("d3", 4.0)], {"repeats": "best"}, [("d3", 4.0), ("d1", 2.0)]),
        ([("d3", 0), ("d1", 0), ("d3", 0)], {"repeats": "best", "scores": None}, [("d3", 1.0), ("d1", 0.5)]),
        ([(7, 1.0)], {}, [("7", 1.0)]),
        ([], {}, []),
    ],
)
def test_results(hits, arguments, expected, tmp_path):
    with service(hits) as server:
        assert search(server, tmp_path, **arguments).row(0) == expected


def test_latency_and_progress(tmp_path):
    calls = []
    with service(fault=lambda asked: Reply(503) if asked.query == "b" and asked.time == 1 else None) as server:
        made = retriever(server.url, tmp_path / "index", parallel=1)
        made.progress = lambda *call: calls.append(call)
        found = made.search([Query.of("q", "a"), Query.of("r", "b"), Query.of("none", " \n")], 3)
        assert made.search([Query.of("q", "a")], 0).docs.shape == (1, 0)
    assert [asked.query for asked in server.asked] == ["a", "b", "b"]
    assert calls == [(1, 2, "queries"), (2, 2, "queries")]
    assert 0 < found.measured["latency_p50_ms"] <= found.measured["latency_p95_ms"] < 5000
    assert _latency([]) == {}
    assert _latency([i / 1000 for i in range(101)]) == {"latency_p50_ms": 50.0, "latency_p95_ms": 95.0}


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
NAMES = st.sampled_from(["results", "id", "score"]) | st.text(max_size=3)
REPLIES = st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=12)


@given(REPLIES | st.lists(st.fixed_dictionaries({"id": VALUES, "score": VALUES})).map(lambda one: {"results": one}))
def test_every_reply_is_read_or_refused(content):
    made = HttpRetriever("https://h/s", **PLAIN, repeats="best")
    try:
        ids, scores = made._pairs(HttpReply(json.dumps(content)))
    except FailedAttempt:
        return
    assert all(isinstance(doc_id, str) for doc_id in ids)
    assert all(map(math.isfinite, scores))
    assert len(ids) == len(scores) == len(content["results"])


@pytest.mark.parametrize(
    ("hits", "arguments", "message"),
    [
        ([("d9", 1.0)], {}, "the result 'd9' is not one of the 5 documents of the corpus. Does ids=results[*].id le"),
        ([(1.5, 1.0)], {}, "the id 1.5 is neither text nor a whole number. Check ids=results[*].id."),
        ([(None, 1.0)], {}, "ids=results[*].id leads nowhere: results[0] has no 'id'. The reply"),
        ([("d1", float("nan"))], {}, "the score nan is not a finite number."),
        ([("d1", "high")], {}, "the score 'high' is not a finite number."),
        ([("d1", 10**400)], {}, "is not a finite number."),
        ([("d1", None)], {}, "scores=results[*].score leads nowhere: results[0] has no 'score'."),
        ([("d1", 2.0), ("d1", 1.0)], {}, "the result 'd1' occurs twice. If the results are parts of documents, set"),
        (HITS, {"ids": "result[*].id"}, "ids=result[*].id leads nowhere: the reply has no 'result'. Did you mean"),
        (HITS, {"ids": "results[*].doc"}, "ids=results[*].doc leads nowhere: results[0] has no 'doc'."),
        (HITS, {"scores": "[*]"}, "scores=[*] leads nowhere: the reply is not a list."),
    ],
)
def test_results_that_end_the_search(hits, arguments, message, tmp_path):
    with service(hits) as server, pytest.raises(Failed) as caught:
        search(server, tmp_path, "물", **arguments)
    assert str(caught.value).startswith(f"Query 'q0' has no result from {server.url}: ")
    assert message in str(caught.value)
    assert len(server.asked) == 1, "another attempt would not help"


def test_more_results_than_the_request_allows_and_distances_are_refused(tmp_path):
    message = r"it returns 2 results instead of 1\. Check where \{k\} is used\."
    with service(lambda query, k: HITS) as server:
        with pytest.raises(Failed, match=message):
            search(server, tmp_path, k=1)
        assert search(server, tmp_path, k=1, body={"query": "{query}", "k": 99}).row(0) == HITS[:1]
    message = r"rise from the first result to the last: .* Set scores=null"
    with service([("d1", 0.1), ("d2", 0.7)]) as server, pytest.raises(Failed, match=message):
        search(server, tmp_path, "a", "b")
    with service(lambda text, k: [("d1", 0.1), ("d2", 0.7)][:: 1 if text == "a" else -1]) as server:
        assert search(server, tmp_path, "a", "b").row(0)[0] == ("d2", 0.7), "a service without any order"


UNEQUAL = {"results": [{"id": "d1"}, {"id": "d2"}], "best": [{"score": 1}]}


@pytest.mark.parametrize(
    ("reply", "scores", "message"),
    [
        (
            Reply(401, {"error": "no"}),
            None,
            r"HTTP 401: no\. If a key is needed, name its header .*runtime\.headers_env",
        ),
        (Reply(200, {"message": "no collection"}), None, r"has no 'results'.* The reply: no collection\."),
        (Reply(200, UNEQUAL), "best[*].score", "`ids` leads to 2 values, but `scores` leads to 1: results need both"),
    ],
)
def test_replies_that_end_the_search(reply, scores, message, tmp_path):
    with service(fault=lambda asked: reply) as server, pytest.raises(Failed, match=message):
        search(server, tmp_path, scores=scores)
    assert len(server.asked) == 1


def test_a_service_that_is_down(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        made = retriever(f"http://127.0.0.1:{free.getsockname()[1]}/s", tmp_path / "index")
        with pytest.raises(Failed, match=r"connection refused\. Is the server running, and is url right\?"):
            made.search([Query.of("q", "a")], 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "localhost:9200"}, "url is not an http"),
        ({"url": "https://u:secret@h/s"}, "url contains a user, a password"),
        ({"url": "https://h/s?api_key=secret"}, "url has the parameter api_key, which looks like a secret"),
        ({"url": "https://{query}.h/s"}, "url has braces in its host"),
        ({"url": "http://search.example.org/", "headers_env": {"A": "B"}}, "http would send the headers unencrypted"),
        ({"ids": "results"}, r"ids='results' is not a path"),
        ({"scores": "a.b"}, r"scores='a.b' is not a path"),
        ({"body": None}, r"Neither url nor body has \{query\} or \{vector\}"),
        ({"body": {"q": "{querry}"}}, r"\{querry\}, which stands for nothing\. Did you mean 'query'"),
        ({"body": "{query}"}, "body must be a group of fields"),
        ({"method": "GET"}, "A GET has no body"),
        ({"body": {"q": "{vector}"}}, r"\{vector\} needs an encoder"),
        ({"body": {"q": "{vector}"}, "encoder": encoder(learns=True)}, "This encoder learns from the documents"),
        ({"encoder": encoder()}, r"encoder is given, but neither url nor body has \{vector\}"),
        ({"headers_env": {"A B": "X"}}, "'A B' is not the name of a header"),
        ({"headers_env": {"A": "Bearer secret"}}, r"headers_env\.A is not the name of an environment variable"),
        ({"timeout": 0}, "timeout=0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(BadInput, match=message) as caught:
        HttpRetriever(**{"url": "https://h/s"} | PLAIN | arguments)
    assert "secret" not in str(caught.value).replace("looks like a secret", "").replace("secrets belong", "")
    HttpRetriever("http://search.example.org/s?keywords={query}", **PLAIN)  # http is allowed without headers


def identity(**more):
    return components.component_identity({"_target_": "retriever/http", "url": "https://h/s", **PLAIN, **more})


def test_the_identity_has_all_that_decides_the_results_and_no_secret():
    changes = {"url": "https://h/other", "ids": "hits[*].id", "scores": None, "body": {"q": "{query}"}}
    for name, value in {**changes, "repeats": "best", "version": "2", "cache": False}.items():
        assert identity(**{name: value}) != identity(), name
    more = {"headers_env": {"Authorization": "ES_AUTH"}, "timeout": 1, "retries": 0, "parallel": 9}
    assert identity(runtime=more) == identity(version="1", cache=True, encoder=None, method="POST")
    assert "ES_AUTH" not in str(identity(runtime=more))


# Templates of requests and paths in replies: tables worked by hand


FILLED = {"query": 'a "b" 물', "quoted_query": '"a \\"b\\" 물"', "k": 10, "vector": [0.5, -1.0]}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{query}", 'a "b" 물'),
        ("{k}", 10),
        ("{vector}", [0.5, -1.0]),
        ("{k} best", "10 best"),
        ("v={vector}", "v=[0.5, -1.0]"),
        ('bm25: {query: {quoted_query}}, limit: {k}', 'bm25: {query: "a \\"b\\" 물"}, limit: 10'),
        ({"size": "{k}", "query": {"match": {"a": "{query}"}}}, {"size": 10, "query": {"match": {"a": 'a "b" 물'}}}),
        ([["{vector}"], 1, None, True, 0.5], [[[0.5, -1.0]], 1, None, True, 0.5]),
        ({"{query}": 1}, {"{query}": 1}),  # keys are no templates
        ("{other} {}", "{other} {}"),
    ],
)  # fmt: skip
def test_a_template_is_filled(template, expected):
    assert fill_template(template, FILLED) == expected


def test_braces_in_a_query_stay_and_an_address_is_encoded():
    assert fill_template("{query}!", FILLED | {"query": "{k}"}) == "{k}!"
    address = fill_address("http://h/s?q={query}&k={k}", FILLED | {"query": "a&b=물/ ?#\ud800"})
    assert address == "http://h/s?q=a%26b%3D%EB%AC%BC%2F%20%3F%23%3F&k=10"
    assert names_in(["http://h/{k}", {"a": ["{query}"], "b": 3, "c": None}]) == {"k", "query"}


SHAPED = {"hits": [{"id": "a", "s": {"x.y": 2}}, {"id": "b", "s": {"x.y": 1}}], "ids": [["a", "b"]], "none": None}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("hits[*].id", ["a", "b"]),
        ("$.hits[*].id", ["a", "b"]),
        ("hits[*].s['x.y']", [2, 1]),
        ("ids[0][*]", ["a", "b"]),
        ("hits?[*].id", ["a", "b"]),
        ("more?[*].id", []),
        ("none?[*].id", []),
        ("hits[*].id?", ["a", "b"]),
    ],
)
def test_a_path_leads_to_values(path, expected):
    assert JsonPath.parse(path, "ids").values(SHAPED) == expected
    assert JsonPath.parse(f"[*].{path.removeprefix('$.')}", "ids").values([SHAPED]) == expected, "in a list"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("hit[*].id", "the reply has no 'hit'. Did you mean 'hits'?"),
        ("hits[*].ids", "hits[0] has no 'ids'. Did you mean 'id'?"),
        ("hits[*].s.x", "hits[0].s has no 'x'."),
        ("hits.id[*]", "hits has no 'id'."),
        ("hits[*].id[*]", "hits[0].id is not a list."),
        ("ids[1][*]", "ids has no element 1."),
        ("none[*]", "the reply has no 'none'."),
        ("ids?.x[*]", "ids has no 'x'."),
    ],
)
def test_a_path_that_leads_nowhere(path, message):
    with pytest.raises(Missing) as caught:
        JsonPath.parse(path, "ids").values(SHAPED)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["", "hits", "hits.id", "hits[", "hits[*", "hits..id[*]", "[*]id", "hits[-1]", "a b[*]", "$"]
)
def test_invalid_paths_are_refused(text):
    with pytest.raises(BadInput, match=r"ids=.* is not a path to a value for each result"):
        JsonPath.parse(text, "ids")
