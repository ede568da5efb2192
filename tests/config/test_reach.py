"""Where a config of --config-dir sends queries and secrets is said before anything is sent."""

import pytest

from harness.config import reach
from harness.config.reach import destinations

HTTP = {"_target_": "retriever/http", "ids": "[*]", "body": {"q": "{query}"}}
NOTE = "Note: with this --config-dir"
LLM = {"_target_": "gate/llm", "model": "tiny"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"retriever": {"a": HTTP | {"url": "http://localhost:9200/_search"}}}, []),
        (
            {"retriever": {"a": HTTP | {"url": "http://10.0.0.7:9200/_search"}}},
            [f"{NOTE}, retriever.a sends the queries to 10.0.0.7:9200."],
        ),
        (
            {"retriever": {"a": HTTP | {"url": "https://far.org/s", "runtime": {"headers_env": {"X": "AWS_SECRET"}}}}},
            [f"{NOTE}, retriever.a sends the queries to far.org, with the value of AWS_SECRET."],
        ),
        (
            {"gate": LLM},
            [f"{NOTE}, gate sends the queries to api.openai.com, with the value of OPENAI_API_KEY."],
        ),
        ({"gate": LLM | {"base_url": "http://127.0.0.1:1/v1"}}, []),
        ({"gate": {"_target_": "gate/none"}, "top_k": 3}, []),
    ],
)
def test_what_leaves_this_machine(config, expected):
    assert list(destinations(config)) == expected


@pytest.mark.parametrize("own", [True, False])
def test_a_folder_of_configs_is_announced(harness, toy, tmp_path, monkeypatch, own):
    monkeypatch.setattr(reach, "_told", set())
    (folder := tmp_path / "mine" / "retriever").mkdir(parents=True)
    (folder / "far.yaml").write_text(
        "far:\n  _target_: retriever/http\n  url: https://search.invalid/s\n  ids: '[*]'\n  body: {q: '{query}'}\n"
        "  runtime: {headers_env: {X-Key: NO_SUCH_KEY}}\n"
    )
    far = ["retriever=http", "retriever.http.url=https://far.invalid/", "retriever.http.ids=[*]",
           "retriever.http.body={q: '{query}'}", "+retriever.http.runtime.headers_env.A=NO_SUCH_KEY"]  # fmt: skip
    words = ["--config-dir=mine", "retriever=far"] if own else far
    done = harness("run", "dataset=contest", "dataset.path=toy", "tracking=none", *words)
    assert done.code == 2
    assert "The environment variable NO_SUCH_KEY is not set" in done.err
    assert ("sends the queries to search.invalid, with the value of NO_SUCH_KEY." in done.err) == own
