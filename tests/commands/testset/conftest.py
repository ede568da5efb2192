"""What tests of several commands share: a language model to ask."""

import pytest


@pytest.fixture
def asking(harness, monkeypatch, own_cache):
    """Call a command against a server, with another cache than other tests: asking("judge", server, "limit=3")."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def call(command, server, *words):
        return harness(f"testset {command}", "testset=ts", "model=tiny", f"llm.base_url={server.url}", *words)

    return call
