"""The client of services: redirects, certificates, limits, interruptions, secrets. See also tests/llm/test_chat.py."""

import base64
import datetime
import functools
import gzip
import ipaddress
import itertools
import json
import re
import signal
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_server import RawServer
from search_server import Reply, SearchServer

from harness.errors import BadInput
from retrievers.external import http_client
from retrievers.external.http_client import FailedAttempt, HttpClient, HttpRequest, Limits, Unanswered
from retrievers.hosts import Address, Secrets
from retrievers.redaction import shown_value

HITS = [("d1", 2.0)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


def server(fault=lambda asked: None, **more):
    return SearchServer(lambda query, k: HITS, "fastapi", fault, **more)


def read_id(place, reply):
    return reply.json()["results"][0]["id"]


def answers(url, texts=("a",), secrets=None, read=read_id, **limits):
    known = Limits(**{"timeout": 5.0, "retries": 2, "parallel": 2} | limits)
    request = [HttpRequest(url, {"query": text, "k": 1}) for text in texts]
    client = HttpClient(Address.of(url, "url"), known, secrets or Secrets())
    return client.answers(len(texts), request.__getitem__, read)


def client_of(url):
    """A function that asks for one answer, always by the same client."""
    client = HttpClient(Address.of(url, "url"), Limits(5.0, 0, 2))

    def call():
        [answer] = client.answers(1, lambda _: HttpRequest(url, {"query": "a", "k": 1}), read_id)
        return answer.value

    return call


def ask(url, texts=("a",), **more):
    return {answer.place: answer.value for answer in answers(url, texts, **more)}


def reason(url, **more):
    with pytest.raises(Unanswered) as caught:
        ask(url, **more)
    return str(caught.value)


def test_connections_are_kept_open_and_redirects_on_the_same_server_followed():
    with server() as service:
        assert ask(service.url, "abcdef", parallel=1) == dict.fromkeys(range(6), "d1")
        assert [asked.headers["Host"] for asked in service.asked] == [service.url.split("/")[2]] * 6
        assert len(service.connections) == 1
        call = client_of(service.url)
        assert [call() for _ in range(3)] == ["d1"] * 3
        assert len(service.connections) == 2
    moved = Reply(307, "", {"Location": "/search/"})
    with server(lambda asked: moved if asked.path == "/search" else None) as service:
        assert ask(service.url) == {0: "d1"}
        assert [asked.path for asked in service.asked] == ["/search", "/search/"]
        assert service.asked[1].body == {"query": "a", "k": 1}


def test_a_failed_or_abandoned_call_leaves_no_connection_to_later_calls():
    """An abandoned answer could still arrive on its connection, and a later call would read it as its own."""
    number = itertools.count()
    with server(lambda asked: Reply(500, "no") if next(number) == 1 else None) as service:
        call = client_of(service.url)
        assert call() == "d1"
        with pytest.raises(Unanswered):
            call()
        assert call() == "d1"
        assert len(service.connections) == 2


def test_calls_in_several_threads_share_no_connection():
    together = threading.Barrier(3)
    with server(lambda asked: together.wait(5) and None) as service:
        call = client_of(service.url)
        with ThreadPoolExecutor(3) as pool:
            assert [*pool.map(lambda _: call(), range(3))] == ["d1"] * 3
        assert len(service.connections) == 3


@pytest.mark.parametrize(
    ("status", "location", "expected"),
    [
        (307, "http://localhost:9/search", "HTTP 307: it redirects to http://localhost:9, which is not followed."),
        (308, "https://example.org/x?token=1", "redirects to https://example.org, which is not followed. If the serv"),
        (302, "http://u:p@127.0.0.1:1/", "it redirects to http://127.0.0.1:1, which is not followed"),
        (301, "/elsewhere", "HTTP 301: it redirects to http://127.0.0.1:"),  # would become a GET without a body
        (307, "/search", "it redirects more than 5 times in a row. Check url."),
        (307, "http://[::1", "HTTP 307: it redirects to 'http://[::1', which is not an address. Check url."),
        (307, "http://127.0.0.1:99999999/", "it redirects to http://127.0.0.1:99999999, which is not followed"),
        (302, "file:///etc/passwd", "it redirects to file://, which is not followed"),
        (302, "gopher:x", "it redirects to gopher://, which is not followed"),
    ],
)
def test_other_redirects_are_refused(status, location, expected, monkeypatch):
    monkeypatch.setenv("KEY", "secret")
    with server(lambda asked: Reply(status, "", {"Location": location})) as service:
        message = reason(service.url, secrets=Secrets({"X-Key": "KEY"}))
        assert expected in message
        assert len(service.asked) == (6 if location == "/search" else 1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a self-signed certificate for 127.0.0.1 and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now, day = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(), datetime.timedelta(days=1)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tiny")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    place = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = made.add_extension(place, critical=False).sign(key, hashes.SHA256())
    form, plain, pem = serialization.PrivateFormat.PKCS8, serialization.NoEncryption(), serialization.Encoding.PEM
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    file.write_bytes(signed.public_bytes(pem) + key.private_bytes(pem, form, plain))
    return file


@pytest.mark.parametrize(
    ("known", "host", "expected"),
    [
        (False, "127.0.0.1", "its certificate cannot be verified: self-signed certificate.*SSL_CERT_FILE"),
        (True, "localhost", "its certificate cannot be verified: Hostname mismatch"),
        (True, "127.0.0.1", ""),
    ],
)
def test_certificates_are_verified(certificate, monkeypatch, known, host, expected):
    if known:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with server(certificate=certificate) as service:
        url = service.url.replace("127.0.0.1", host)
        if expected:
            assert re.match(expected, reason(url))
        else:
            assert ask(url) == {0: "d1"}
        assert len(service.asked) == (not expected)


# Slow, large and broken replies

OK, PACKED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {  # what comes first, and what comes for ever
    "interim replies": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a status line": (b"HTTP/1.1 200 ", b"a"),
    "a header": (OK + b"X: ", b"a"),
    "a body": (OK + b"Content-Length: 99999\r\n\r\n", b" "),
    "the extension of a chunk": (CHUNKED + b"1;", b"a"),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: a\r\n"),
    "gzip that unpacks to nothing": (PACKED + gzip.compress(b"{}")[:10], b"\x00\x00\x00\xff\xff"),
    "empty files of gzip": (PACKED, gzip.compress(b"")),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_reply_has_one_deadline(kind):
    """Each part comes in time, and the reply has no end."""
    first, again = ENDLESS[kind]
    with RawServer(lambda wire: wire.trickle(first, again, pause=0.02)) as service:
        began = time.monotonic()
        assert "no response within 0.3 s (runtime.timeout)" in reason(service.url, timeout=0.3, retries=0)
        assert time.monotonic() - began < 1.5


LARGE = {kind: (ENDLESS[kind][0], ENDLESS[kind][1] * 2000) for kind in ("interim replies", "empty files of gzip")}
LARGE["a bomb"] = PACKED, gzip.compress(bytes(4 << 20))


@pytest.mark.parametrize("kind", LARGE)
def test_a_reply_is_limited_in_size_as_sent_and_as_unpacked(kind, monkeypatch):
    monkeypatch.setattr(http_client, "LARGEST_REPLY", 1 << 20)
    with RawServer(lambda wire: wire.trickle(*LARGE[kind])) as service:
        assert "the reply is larger than 1 MB: ask for less" in reason(service.url, timeout=20.0)


def test_a_reply_that_is_packed_twice_is_not_unpacked():
    """A hundred bytes could become a billion empty files, each of which unpacks to nothing."""
    twice = gzip.compress(gzip.compress(b"{}"))
    with RawServer(lambda wire: wire.send(PACKED.replace(b"gzip", b"gzip, gzip") + twice)) as service:
        assert reason(service.url, retries=0) == "DecodeError: the reply is compressed more than once."


def test_redirects_and_their_reply_share_the_deadline():
    with server(lambda asked: time.sleep(0.2) or Reply(307, "", {"Location": "/search"})) as service:
        assert "no response within 0.5 s" in reason(service.url, timeout=0.5, retries=0)
        assert len(service.asked) < 6


@pytest.mark.parametrize("scheme", ["http:", "https:"])
def test_a_service_that_does_not_take_the_request(scheme):
    """The service reads nothing; in TLS, its first message has no end."""
    with RawServer(lambda wire: wire.trickle(b"\x16\x03\x03\x3f\xff\x02", b"\0", 0.02), reads=False) as service:
        url = service.url.replace("http:", scheme)
        assert "no response within 0.3 s" in reason(url, texts=["x" * (16 << 20)], timeout=0.3, retries=0)


@pytest.fixture
def interrupt():
    """A function that does what Ctrl-C does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a command that has ended leaves another one
    yield functools.partial(signal.pthread_kill, threading.get_ident(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", ["nothing", "interim replies"])
def test_an_interruption_ends_every_wait(kind, monkeypatch, interrupt):
    """Ctrl-C while replies are under way: their connections are shut, and no thread goes on."""
    monkeypatch.setattr(http_client, "GRACE_SECONDS", 0.2)
    first, again = ENDLESS.get(kind, (b"", b""))
    with RawServer(lambda wire: wire.trickle(first, again, pause=0.05)) as service:
        before = threading.active_count()
        threading.Timer(0.3, interrupt).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ask(service.url, "abcdef", timeout=60.0, parallel=4)
        assert time.monotonic() - began < 2
        assert service.ended.wait(2)  # the service is told
        assert threading.active_count() <= before + 4  # its own, at most


def test_requests_under_way_end_with_the_iteration(monkeypatch):
    monkeypatch.setattr(http_client, "GRACE_SECONDS", 0.2)
    with server(lambda asked: None if asked.query == "a" else time.sleep(3)) as service:
        found = answers(service.url, "abcdefghi", timeout=60.0)
        assert next(found).value == "d1"
        began = time.monotonic()
        found.close()
        assert time.monotonic() - began < 1.5
        assert len(service.asked) <= 3


def test_errors_of_the_reader_stop_the_requests():
    def refuse(place, reply):
        raise FailedAttempt(f"never: {reply.quoted()}", final=True)

    with server(lambda asked: Reply(body="x" * 1000)) as service:
        assert re.fullmatch(r"never: x{300}…\.", reason(service.url, read=refuse))
        assert len(service.asked) == 1
        with pytest.raises(ZeroDivisionError):
            ask(service.url, "a" * 50, parallel=1, read=lambda place, reply: 1 / 0)
        assert len(service.asked) < 50


def test_all_threads_wait_when_the_service_asks_one_to():
    times = []

    def fault(asked):
        first = not times
        times.append(time.monotonic())
        time.sleep(0.05)
        return Reply(429, "", {"Retry-After": "0.5"}) if first else None

    with server(fault) as service:
        assert len(ask(service.url, "abcdef", parallel=2)) == 6
    late = [one - times[0] for one in times]
    assert sum(one < 0.45 for one in late) <= 3  # the two that went out first, and one that followed before the reply
    assert len(late) == 7


def test_a_busy_service_is_asked_again_while_it_answers_some_requests():
    """It takes two of eight simultaneous requests; three refusals in a row of the same request would be too many."""
    busy, count = threading.Semaphore(2), [0]

    def fault(asked):
        if not busy.acquire(blocking=False):
            count[0] += 1
            return Reply(429, "", {"Retry-After": "0.02"})
        time.sleep(0.01)
        busy.release()
        return None

    with server(fault) as service:
        texts = [str(i) for i in range(60)]
        assert len(ask(service.url, texts, parallel=8)) == 60
    assert count[0] > 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"root_cause": [], "type": "x", "reason": "no index [a]"}, "status": 404}, "no index [a]."),
        ({"responseHeader": {"status": 400}, "error": {"msg": "no field text", "code": 400}}, "no field text."),
        ({"status": {"error": "Not found: Collection `a`!"}, "time": 0.1}, "Not found: Collection `a`!."),
        ({"code": 100, "message": "can't find collection"}, "can't find collection."),
        ({"detail": [{"loc": ["body", "k"], "msg": "Input should be a number"}]}, "Input should be a number."),
        ({"detail": "Not Found"}, "Not Found."),
        ({"root": {"errors": [{"code": 4}]}}, '{"root": {"errors": [{"code": 4}]}}.'),
        ("<html>\n  busy </html>", "<html> busy </html>."),
    ],
)  # fmt: skip
def test_the_error_message_of_a_service(body, expected):
    with server(lambda asked: Reply(400, body)) as service:
        assert reason(service.url) == f"HTTP 400: {expected}"


SECRET = "sk-SECRETabc123XYZ"
FORMS = {
    "as sent": SECRET,
    "in capitals": SECRET.upper(),
    "on two lines": f"{SECRET[:8]}\n  {SECRET[8:]}",
    "with escapes of JSON": "".join(f"\\u{ord(one):04x}" for one in SECRET),
    "with escapes of an address": "".join(f"%{ord(one):02X}" for one in SECRET),
    "escaped twice": urllib.parse.quote("".join(f"%{ord(one):02X}" for one in SECRET)),
    "in base64": base64.b64encode(SECRET.encode()).decode(),
}


def _raw(head, body=""):
    return f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


REPLIES = {
    "message": lambda key: _raw("401 No", json.dumps({"error": {"message": f"no: {key}"}})),
    "JSON": lambda key: _raw("401 No", json.dumps({"x": key}).replace("\\\\", "\\")),
    "text": lambda key: _raw("200 OK", f"<p>{key}</p>"),
    "id": lambda key: _raw("200 OK", json.dumps({"results": [{"id": key}]})),
    "no HTTP": lambda key: f"ERR bad key {key}\r\n\r\n".encode(),
    "status": lambda key: _raw(f"abc{key}"),
    "reason": lambda key: _raw(f"500 {key}"),
    "redirect": lambda key: f"HTTP/1.1 302 No\r\nLocation: https://{key}.example/\r\n\r\n".encode(),
    "no address": lambda key: f"HTTP/1.1 302 No\r\nLocation: https://[{key}/\r\n\r\n".encode(),
    "chunk": lambda key: f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{key}\r\n".encode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", REPLIES)
def test_a_key_is_never_quoted_in_any_form(form, kind, monkeypatch):
    monkeypatch.setenv("KEY", SECRET)

    def refuse(place, reply):
        raise FailedAttempt(f"the result {shown_value(reply.json()['results'][0]['id'])} is unknown", final=True)

    with RawServer(lambda wire: wire.send(REPLIES[kind](FORMS[form]))) as service:
        said = reason(service.url, retries=0, secrets=Secrets({"Authorization": "KEY"}), read=refuse)
    bare = re.sub("[^0-9a-z]", "", urllib.parse.unquote(said).lower())
    assert "abc123" not in bare
    assert re.sub("[^0-9a-z]", "", FORMS[form].lower()) not in bare
    assert ("Check the key in the environment variable KEY." in said) == (kind in ("message", "JSON"))


def test_a_variable_with_a_line_break_is_refused(monkeypatch):
    monkeypatch.setenv("KEY", "a\nX-Other: 1")
    with pytest.raises(BadInput, match="The key in KEY contains characters"), server() as service:
        ask(service.url, secrets=Secrets({"X-Key": "KEY"}))


def test_other_machines_are_reached_through_the_proxy(monkeypatch):
    """The proxy of this test is the service itself: it is asked for a whole address, with the proxy's login."""
    with server() as service:
        monkeypatch.setenv("http_proxy", service.url.replace("http://", "http://u:p@").removesuffix("/search"))
        monkeypatch.setenv("no_proxy", "")
        assert ask("http://search.invalid/search") == {0: "d1"}
        [asked] = service.asked
    assert asked.path == "http://search.invalid/search"
    assert asked.headers["proxy-authorization"] == "Basic dTpw"
