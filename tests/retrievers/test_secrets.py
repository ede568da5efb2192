"""Texts without the secrets of the environment; addresses of other machines, which are named and hold no secret."""

import base64
import json
import logging
import subprocess
import sys
import urllib.parse

import pytest

from harness.errors import BadInput
from retrievers import hosts, redaction
from retrievers.hosts import Address
from retrievers.redaction import RedactingFormatter, redacted, register

KEY = "sk-SECRETabc123XYZ"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(hosts.NAMED, "")
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
        raise KeyError("no") from ValueError(KEY)
    except KeyError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "said %s", (KEY,), sys.exc_info())
    shown = RedactingFormatter("%(levelname)s %(message)s").format(record)
    assert shown.startswith("ERROR said [key]\n")
    assert "ValueError: [key]" in shown
    assert KEY not in shown


@pytest.mark.parametrize(("url", "local", "encrypted"), [
    ("http://localhost:1/x", True, True), ("http://127.9.0.1", True, True), ("http://[::1]/", True, True),
    ("https://example.org/x", False, True), ("http://example.org/x", False, False),
    ("http://localhost.example.org", False, False), ("http://10.0.0.1/", False, False),
])  # fmt: skip
def test_only_this_machine_and_https_are_safe(url, local, encrypted):
    address = Address.of(url, "url")
    assert (address.local, address.encrypted) == (local, encrypted)


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://h/", "https://", "https://u:secret@h", "https://h/#secret", "http://h:x"]
)
def test_invalid_addresses_are_refused(url):
    with pytest.raises(BadInput) as caught:
        Address.of(url, "llm.base_url")
    assert str(caught.value).startswith("base_url ")
    assert "secret" not in str(caught.value).partition("secrets belong")[0]


def test_another_machine_is_named_once_without_a_secret_and_this_one_never(capsys):
    """Child processes of a command do not repeat the notice."""
    for _ in range(2):
        hosts.name_host("https://me:secret@far.example:8443/path?key=secret#secret", "tracking.uri")
    hosts.name_host("ray://10.0.0.7:6379", "RAY_ADDRESS")
    assert capsys.readouterr().err == "Talks to far.example:8443 (tracking.uri)\nTalks to 10.0.0.7:6379 (RAY_ADDRESS)\n"
    code = "from retrievers.hosts import name_host; name_host('ray://10.0.0.7:6379', 'x')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""
    for address in ("http://127.0.0.1:5000", "http://[::1]:1/a", "http://localhost", "https://a.localhost/"):
        hosts.name_host(address, "x")
    for address in ("sqlite:////a/b.db", "file:///a", "runs.db", "", "http://[::1"):
        hosts.name_host(address, "x")
    assert capsys.readouterr().err == ""


def refused(*_):
    raise RuntimeError("far enough")


def test_every_kind_of_server_is_named_before_it_is_asked(harness, toy, monkeypatch):
    monkeypatch.setattr("harness.tracking.mlflow_tracker.open_client", refused)
    monkeypatch.setattr("retrievers.external.http_client.Connections.__init__", refused)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    words = ("run", "dataset=contest", "dataset.path=toy", "tracking=none")
    url = "retriever.http.url=https://search.example/find?secret={query}"
    done = harness(*words, "retriever=http", "retriever.http.ids=hits[*].id", url)
    assert "Talks to search.example (" in done.err, done.err
    assert "Talks to api.openai.com (llm.base_url)\n" in harness(*words, "gate=llm", "llm.model=m").err
    address = "http://me:secret@tracking.invalid:5000"
    by_key = harness("runs", f"tracking.uri={address}").err
    assert "Talks to tracking.invalid:5000 (tracking.uri)\n" in by_key
    monkeypatch.setenv(hosts.NAMED, "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    by_variable = harness("runs").err
    assert "Talks to tracking.invalid:5000 (MLFLOW_TRACKING_URI)\n" in by_variable
    assert "me:secret" not in by_key + by_variable
