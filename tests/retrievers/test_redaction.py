"""Texts without the secrets of the environment, in whatever form they are repeated."""

import base64
import json
import logging
import sys
import urllib.parse

import pytest

from retrievers import redaction
from retrievers.redaction import RedactingFormatter, redacted, register

KEY = "sk-SECRETabc123XYZ"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setattr(redaction, "_VARIABLES", set(redaction._VARIABLES))
    for name in redaction._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("A_KEY", KEY)
    register("A_KEY")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        f"x{KEY}y",
        f"%{KEY}",
        KEY.lower(),
        f"{KEY[:9]}\n    {KEY[9:]}",
        f"{KEY[:9]}' '{KEY[9:]}",
        " ".join(KEY),
        json.dumps("".join(f"\\u{ord(one):04x}" for one in KEY)),
        "".join(f"\\x{ord(one):02x}" for one in KEY),
        "".join(f"%{ord(one):02x}" for one in KEY),
        urllib.parse.quote(urllib.parse.quote("".join(f"%{ord(one):02X}" for one in KEY))),
        "".join(f"&#{ord(one)};" for one in KEY),
        "".join(f"&#x{ord(one):X};" for one in KEY),
        repr(f"{KEY[:9]}\r\n\t{KEY[9:]}"),
        encoded(KEY),
    ],
)
def test_a_secret_is_found_in_any_form(form):
    shown = redacted(f"before 달 {form} after {form}")
    assert shown.startswith("before 달 ")
    assert shown.count("[key]") == 2
    assert "after" in shown
    assert len(shown) < 45, "nothing of it stays"


@pytest.mark.parametrize(
    "text", ["", "달은 왜?", f"{KEY[:9]} is only its beginning", f"{KEY[:9]}0{KEY[9:]}", "\\u12 %zz &#;"]
)
def test_other_texts_stay_as_they_are(text):
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("Basic " + encoded("me:pass-word"), "me:pass-word or pass-word", "[key] or [key]"),
        ("root:pass-word", "pass-word for root", "[key] for root"),
        ("ApiKey a/b\"c\\d'e", "a\\/b\\\"c\\\\d'e", "[key]"),
        ("hunter2", "hunter2, hunter22", "[key], hunter22"),  # a short one is a word
        ("not-needed", "not-needed, not needed", "[key], not needed"),  # without a digit it may be words
        ("EMPTY", "EMPTY", "EMPTY"),  # a placeholder
        ("", "text", "text"),
        ("http://joe:geheim%2099x@[::1", "geheim 99x", "[key]"),
        ("http://proxy:3128/", "http://proxy:3128/", "http://proxy:3128/"),
        ("\udcff\udcfe-not-unicode-1", "a \udcff\udcfe-not-unicode-1", "a \udcff\udcfe-[key]"),
    ],
)
def test_the_secret_parts_of_a_value(value, text, expected, monkeypatch):
    monkeypatch.setenv("A_KEY", value)
    assert redacted(text) == expected


def test_variables_that_libraries_read_are_secret_too(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pass-word")
    monkeypatch.setenv("https_proxy", "http://joe:geheim99x@proxy:3128")
    shown = redacted(f"Basic {encoded('me:pass-word')}, pass-word, http://joe:geheim99x@proxy:3128")
    assert shown == "Basic [key], [key], http://[key]@proxy:3128"
    monkeypatch.setenv("A_KEY", "ollama")
    assert (redacted("ollama runs"), redacted("ollama runs", shortest=8)) == ("[key] runs", "ollama runs")


def test_logs_and_their_tracebacks():
    try:
        try:
            raise ValueError(KEY)
        except ValueError as error:
            raise KeyError("no") from error
    except KeyError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "said %s", (KEY,), sys.exc_info())
    shown = RedactingFormatter("%(levelname)s %(message)s").format(record)
    assert shown.startswith("ERROR said [key]\n")
    assert "ValueError: [key]" in shown
    assert KEY not in shown
