"""Numbers and texts as people read them."""

import html
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.reports import markup


def test_numbers():
    values = (0.0, 0.5, -0.25, 0.0004, None, math.nan)
    assert [*map(markup.number, values)] == ["0.0000", "0.5000", "-0.2500", "0.0004", "–", "–"]
    assert [*map(markup.signed, values)] == ["0", "+0.5000", "-0.2500", "+0.0004", "–", "–"]
    assert [*map(markup.p_value, values)] == ["< 0.001", "0.500", "< 0.001", "< 0.001", "–", "–"]


def test_an_interval_needs_both_ends_and_a_snippet_is_one_line():
    assert markup.interval(0.1234, 0.5) == "0.123 – 0.500"
    assert markup.interval(None, 0.5) == markup.interval(0.1, math.nan) == "–"
    assert markup.interval(None, None, absent="") == ""
    assert [markup.rounded_or_none(value) for value in (1 / 3, math.nan, -math.inf)] == [0.333333, None, None]
    assert markup.snippet("two\n words ") == "two words"
    assert markup.snippet("ab " * 100) == ("ab " * 100)[: markup.SNIPPET - 1] + "…"


@pytest.mark.parametrize(
    ("levels", "thresholds", "text"),
    [
        ((3, 0), (2.5694,), "3 documents from 2.569, below that none"),
        ((3, 1, 0), (5.0, 2.0), "3 documents from 5, 1 document from 2, below that none"),
        ((3, 1, 0), (5.0, -math.inf), "3 documents from 5, 1 document for all others"),
        ((3, 1, 0), (math.inf, 2.0), "1 document from 2, below that none"),
        ((3, 0), (-math.inf,), "3 documents for every query"),
        ((3, 0), (math.inf,), "withholds all documents"),
    ],
)
def test_what_a_gate_shows(levels, thresholds, text):
    assert markup.levels_text(levels, thresholds) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a | b", "a &#124; b"),  # would end a cell
        ("1. first", "1&#46; first"),  # would be a list
        ("- item", "&#45; item"),
        ("http://x", "http&#58;//x"),  # would be a link
        ("two\nlines", "two lines"),
        ("a_b*c", "a&#95;b&#42;c"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("a: b", "a: b"),
        ("", ""),
    ],
)
def test_markdown_shows_texts_as_they_are(text, expected):
    assert markup.marked(text) == expected
    assert html.unescape(expected) == " ".join(text.split())


@given(st.text())
def test_no_text_is_markup(text):
    escaped = markup.marked(text)
    assert not re.search(r"[\\`*_\[\]|~!<>\n@]|#(?!\d)|^\s*[-+=]|^\d+[.)]|://", escaped)
    assert " ".join(html.unescape(escaped).split()) == " ".join(html.unescape(html.escape(text, quote=False)).split())
