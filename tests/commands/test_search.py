"""An open search answers each query as a search of its own does, and loads everything once."""

import io
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import harness as package
from harness.commands import search
from retrievers.lexical.bm25 import BM25

QUERIES = ["달은 왜 모양이 변해?", "물은 몇 도에서 끓어?"]
WORDS = ("search", "tokenizer=word", "format=json")


@pytest.fixture
def given(monkeypatch):
    """Replace standard input: given(lines, terminal=False), with an iterable of bytes."""

    def give(lines, terminal=False):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=lines, isatty=lambda: terminal))
        if terminal:
            monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    return give


@pytest.fixture
def typed(given, monkeypatch):
    """Type at the prompt: typed(text or exception, ...); the list of prompts grows."""

    def typing(*answers):
        waiting, prompts = iter(answers), []

        def answer(prompt):
            prompts.append(prompt)
            if isinstance(one := next(waiting), BaseException):
                raise one
            return one

        given([], terminal=True)
        monkeypatch.setattr("builtins.input", answer)
        return prompts

    return typing


@pytest.fixture
def loads(monkeypatch):
    """The indexes that were loaded, and the datasets that were read."""
    found, plain, read = [], BM25.load, search.read_documents
    monkeypatch.setattr(BM25, "load", lambda self, folder: (found.append("index"), plain(self, folder))[1])
    monkeypatch.setattr(search, "read_documents", lambda *args: (found.append("documents"), read(*args))[1])
    return found


def answers(text):
    return [json.loads(line) for line in text.splitlines()]


def test_lines_are_answered_in_order_as_alone_and_nothing_is_loaded_again(harness, given, loads):
    alone = [harness(*WORDS, f"query='{one}'").json for one in QUERIES]
    loads.clear()
    given("\n  \n".join(["\ufeff" + QUERIES[0], *QUERIES[1:], QUERIES[0]]).encode().splitlines(keepends=True))
    done = harness(*WORDS)
    assert (done.code, answers(done.out)) == (0, [*alone, alone[0]])
    assert sorted(loads) == ["documents", "index"]


def test_a_line_is_answered_before_the_next_is_read(harness, given, monkeypatch):
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)

    def lines() -> Iterator[bytes]:
        for number, one in enumerate(QUERIES):
            assert len(answers(printed.getvalue())) == number
            yield one.encode()

    given(lines())
    harness(*WORDS)
    assert len(answers(printed.getvalue())) == 2


def test_a_line_that_is_not_utf8_ends_the_session_after_the_answers_before_it(harness, given):
    given([QUERIES[0].encode(), b"\xff\n", QUERIES[1].encode()])
    done = harness(*WORDS)
    assert (done.code, len(answers(done.out))) == (2, 1)
    assert "standard input:2: byte 0xff is not UTF-8" in done.err


def test_the_prompt_asks_until_the_end_and_survives_a_failed_query(harness, typed, loads, monkeypatch):
    plain = search.Asked.__call__

    def ask(self, text):
        if text == "fails":
            raise package.Failed("The service did not answer.")
        return plain(self, text)

    monkeypatch.setattr(search.Asked, "__call__", ask)
    prompts = typed(QUERIES[0], "fails", " ", QUERIES[1], EOFError())
    done = harness(*WORDS)
    assert [one["query"] for one in answers(done.out)] == QUERIES
    assert (done.code, set(prompts), len(prompts)) == (0, {"query> "}, 5)
    assert "130 documents. Ctrl-D ends." in done.err
    assert "The service did not answer." in done.err
    assert sorted(loads) == ["documents", "index"]


def test_an_interruption_at_the_prompt_ends_the_session_quietly(harness, typed):
    typed(KeyboardInterrupt())
    done = harness("search", "tokenizer=word")
    assert (done.code, done.out) == (0, "")
    assert "Interrupted" not in done.err


def test_python_code_must_give_the_query(harness):
    with pytest.raises(package.BadInput, match=r"harness.search does not read standard input. Give query=TEXT"):
        package.search("tokenizer=word")
