"""The page's server: what it answers, what it refuses, and that an answer comes after the disk."""

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from filelock import FileLock, Timeout
from judged_sets import judged_set

from harness.data.documents_folder import DocumentsFolder
from harness.errors import BadInput
from harness.testset.judge.judgements import Judgement, JudgementLog, read_judged_set, text_digest
from harness.testset.review.desk import Desk, Item, RefusedRequest, ReviewLedger
from harness.testset.review.server import FILES, ReviewServer

JSON = {"Content-Type": "application/json"}
NAMES = ("kim", "lee")


class Served:
    """A running server of two reviewers, asked without any client in between that would correct a request."""

    def __init__(self, folder):
        self.made = judged_set(folder, 3)
        pool = self.made.pool()
        self.log = JudgementLog(self.made.folder)
        queries = self.made.queries
        documents = {one.document.doc_id: one.document for one in DocumentsFolder(self.made.documents).chunks()}
        self.items = [Item(one, None, 1, "audit", 0.5) for one in queries]
        self.items += [Item(one.query_id, one.doc_id, 1, "audit", 0.5) for one in pool.pairs]
        by = [f"human:{name}" for name in NAMES]
        ledger, judged = ReviewLedger(self.log, queries, by), read_judged_set(self.made.folder)
        desks = [Desk(one, self.items, judged, documents, ledger) for one in by]
        self.server = ReviewServer(desks, "127.0.0.1", 0)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.root = {name: urlsplit(link).path for name, link in self.server.links.items()}

    def ask(self, path, method="GET", body=None, headers=None, name="kim"):
        """(status, headers, content) of a request; a path that begins with / is not below the reviewer's link."""
        connection = http.client.HTTPConnection(self.host, timeout=10)
        whole = path if path.startswith("/") else self.root[name] + path
        connection.putrequest(method, whole, skip_host=True, skip_accept_encoding=True)
        content = json.dumps(body).encode() if isinstance(body, dict | list) else body
        length = {} if content is None else {"Content-Length": str(len(content))}
        for key, value in ({"Host": self.host} | length | (headers or {})).items():
            if value is not None:
                connection.putheader(key, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        got = answer.status, answer.headers, answer.read()
        connection.close()
        return got

    def json(self, path, name="kim"):
        status, _, content = self.ask(path, name=name)
        assert status == 200, content
        return json.loads(content)

    def judge(self, key, value, before=None, name="kim"):
        said = {"key": key, "value": value, "before": before}
        status, _, content = self.ask("api/judgements", "POST", said, JSON, name)
        return status, json.loads(content)

    def keys(self, name="kim"):
        """(keys of needs, keys of pairs)."""
        found = self.json("api/items", name)
        needs = found["needs"]
        return needs, [key for group in found["queries"] for key in group if key not in needs]

    def end(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    one = Served(tmp_path_factory.mktemp("served"))
    yield one
    one.end()


GOOD = {"key": "0" * 16, "value": 1, "before": None}


@pytest.mark.parametrize(
    ("status", "path", "more"),
    [
        (403, "", {"headers": {"Host": "evil.example"}}),
        (403, "", {"headers": {"Host": "evil.example:5050"}}),
        (403, "", {"headers": {"Host": "127.0.0.1.evil.example"}}),
        (403, "", {"headers": {"Host": "192.0.2.7"}}),
        (403, "", {"headers": {"Host": "[::1"}}),
        (403, "", {"headers": {"Host": None}}),
        (403, "", {"headers": {"Host": "127.0.0.1/evil"}}),
        (403, "", {"headers": {"Host": "evil@127.0.0.1"}}),
        (403, "api/items", {"headers": {"Origin": "http://evil.example"}}),
        (403, "api/items", {"headers": {"Origin": "null"}}),
        (403, "api/items", {"headers": {"Origin": "http://localhost:1"}}),
        (403, "page.js", {"headers": {"Sec-Fetch-Site": "cross-site"}}),
        (403, "api/judgements", {"method": "POST", "headers": JSON | {"Sec-Fetch-Site": "same-site"}, "body": GOOD}),
        (403, "api/judgements", {"method": "POST", "headers": JSON | {"Origin": "http://evil.example"}, "body": GOOD}),
        (404, "/", {}),
        (404, "/r/guessed/api/items", {}),
        (404, "/r/%C3%BC/", {}),
        (404, "../../page.html", {}),
        (404, "api/secrets", {}),
        (404, "server.py", {}),
        (404, "api/texts?keys=0000000000000000", {}),
        (400, "api/texts", {}),
        (400, "api/texts?keys=" + ",".join("0" * 51), {}),
        (400, "api/found?words=%ff", {}),
        (400, "api/changes?since=-1", {}),
        (400, "api/changes?since=1&since=2", {}),
        (400, "api/found?" + "&".join(f"a{n}=1" for n in range(9)), {}),
        (405, "api/judgements", {}),
        (405, "api/items", {"method": "POST", "headers": JSON, "body": GOOD}),
        (501, "", {"method": "DELETE"}),
        (501, "", {"method": "OPTIONS"}),
        (415, "api/judgements", {"method": "POST", "headers": {"Content-Type": "text/plain"}, "body": GOOD}),
        (415, "api/judgements", {"method": "POST", "body": GOOD}),
        (411, "api/judgements", {"method": "POST", "headers": JSON | {"Content-Length": None}}),
        (411, "api/judgements", {"method": "POST", "headers": JSON | {"Transfer-Encoding": "chunked"}, "body": GOOD}),
        (400, "api/judgements", {"method": "POST", "headers": JSON | {"Content-Length": "-1"}}),
        (413, "api/judgements", {"method": "POST", "headers": JSON, "body": GOOD | {"key": "0" * 1000}}),
        (413, "api/judgements", {"method": "POST", "headers": JSON | {"Content-Length": "9" * 30}}),
        (400, "api/judgements", {"method": "POST", "headers": JSON, "body": b"{"}),
        (400, "api/judgements", {"method": "POST", "headers": JSON, "body": b"[" * 900}),
        (400, "api/judgements", {"method": "POST", "headers": JSON, "body": [GOOD]}),
        (400, "api/judgements", {"method": "POST", "headers": JSON, "body": GOOD | {"round": 2}}),
        (400, "api/judgements", {"method": "POST", "headers": JSON, "body": GOOD | {"value": True}}),
        (400, "api/judgements", {"method": "POST", "headers": JSON, "body": GOOD | {"value": 2.0}}),
        (404, "api/judgements", {"method": "POST", "headers": JSON, "body": GOOD}),
        (414, "api/found?words=" + "a" * 70_000, {}),
        (431, "", {"headers": {"X-Long": "a" * 70_000}}),
    ],
)  # fmt: skip
def test_requests_that_are_refused(served, status, path, more):
    before = served.log.read()
    found, headers, content = served.ask(path, **more)
    assert (found, bool(json.loads(content)["error"])) == (status, True)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert served.log.read() == before


@pytest.mark.parametrize(("value", "of"), [(4, "pair"), (-1, "pair"), (2, "need"), ("yes", "pair")])
def test_what_cannot_be_said_is_refused(served, value, of):
    needs, pairs = served.keys()
    assert served.judge(pairs[0] if of == "pair" else needs[0], value)[0] == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:9999"},  # a tunnel
        {"Host": "[::1]:5050"},
        {"Sec-Fetch-Site": "none"},  # the address was typed
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a link in a mail
    ],
)
def test_requests_from_this_machine_are_answered(served, headers):
    status, found, content = served.ask("", headers=headers)
    assert (status, content[:15]) == (200, b"<!DOCTYPE html>")
    assert (found["X-Content-Type-Options"], found["Cache-Control"]) == ("nosniff", "no-store")
    assert "trusted-types 'none'" in found["Content-Security-Policy"]


def test_the_page_loads_nothing_but_its_own_files_and_has_no_inline_script(served):
    page = served.ask("")[2].decode()
    assert "<script>" not in page
    assert "style=" not in page
    for name in FILES:
        content = served.ask(name)[2].decode()
        assert "http:" not in content.replace("http://www.w3.org/2000/svg", ""), name
        assert "innerHTML" not in content, name


def test_a_judgement_is_in_the_file_when_it_is_acknowledged(served):
    (_, need, *_), (_, pair, *_) = served.keys()
    for key, value, before, written in (
        (pair, 3, None, (3, None, False)),
        (pair, None, 3, (None, None, True)),
        (need, 0, None, (None, False, False)),
        (need, "?", 0, (None, None, False)),
    ):
        assert served.judge(key, value, before) == (200, {"saved": value})
        last = served.log.read()[-1]
        assert (last.grade, last.needs, last.withdrawn) == written
        assert (last.by, last.sample, last.pi, last.blind) == ("human:kim", "audit", 0.5, True)
        assert (last.text, last.doc_id is None) == (text_digest(served.made.queries[last.query_id]), key == need)


def test_a_judgement_is_written_once_and_not_overwritten_unseen(served):
    key = served.keys()[1][3]
    assert served.judge(key, 1)[0] == 200
    written = len(served.log.read())
    assert served.judge(key, 1) == (200, {"saved": 1}), "the first answer was lost: `before` is what it was then"
    assert len(served.log.read()) == written
    status, said = served.judge(key, 2, before=None)
    assert (status, said["value"]) == (409, 1)
    assert served.judge(key, 2, before=1)[0] == 200


def test_a_judgement_of_another_server_is_seen_before_one_is_written(tmp_path):
    """Two servers of one test set: between a look at the log and the line that is added, no other line comes."""
    made = judged_set(tmp_path, 3)
    query_id, query = next(iter(made.queries.items()))
    item, free = Item(query_id, None, 1, "audit", 0.5), []
    said = [item.judgement(query, "human:kim", "2026-01-01", value) for value in (1, 0)]
    mine, theirs = (ReviewLedger(JudgementLog(made.folder), made.queries, ["human:kim"]) for _ in range(2))

    def looking(position):
        with suppress(Timeout), FileLock(made.folder / ".judgements.jsonl.lock").acquire(timeout=0):
            free.append(position)
        return JudgementLog.since(mine._log, position)

    mine._log.since = looking
    mine.put(item, said[0], None)
    assert not free, "the log is locked whenever it is read"
    with pytest.raises(RefusedRequest) as changed:
        theirs.put(item, said[1], None)
    assert changed.value.document["value"] == 1
    assert JudgementLog(made.folder).read() == said[:1]


def test_reviewers_have_long_links_and_do_not_see_each_other(served):
    key = served.keys()[1][4]
    revision = served.json("api/items", "lee")["revision"]
    assert served.judge(key, 1)[0] == 200
    assert served.json(f"api/changes?since={revision}", "lee") == {"values": {}, "revision": revision}
    assert key not in served.json("api/items", "lee")["values"]
    assert served.judge(key, 2, name="lee")[0] == 200
    assert served.json("api/items")["values"][key] == 1
    links = served.server.links
    assert [*links] == [*NAMES]
    assert len({link.split("/")[4] for link in links.values()}) == 2
    assert all(len(link.split("/")[4]) >= 24 for link in links.values())


def test_what_another_process_writes_is_seen(served):
    """Such as a workbook that is read back, or a second server; other texts, judges and samples do not count."""
    first, other = [one for one in served.items if one.doc_id][:7:6]
    revision = served.json("api/items")["revision"]

    def written(item, grade, by="human:kim", sample="audit", text=None):
        digest = text or text_digest(served.made.queries[item.query_id])
        served.log.append([Judgement(item.query_id, digest, item.doc_id, grade, by, "2026-11-22", sample=sample)])

    written(first, 2)
    written(first, 3, text="0" * 12)
    written(first, 0, by="llm:m#1")
    written(other, 2, sample="repair")
    news = served.json(f"api/changes?since={revision}")
    assert (news["values"], news["revision"]) == ({first.key: 2, other.key: None}, revision + 2)


def test_many_windows_at_once_lose_nothing(served):
    """Two reviewers with four windows each judge the same pairs; each acknowledgement is in the file."""

    def window(name, value):
        keys = served.keys(name)[1][8:12]
        return [(name, key, value) for key in keys if served.judge(key, value, None, name)[0] == 200]

    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(window, name, value) for name in NAMES for value in range(4)]
    acknowledged = [one for window in found for one in window.result()]
    assert len(acknowledged) == 8, "of each reviewer and pair, one window was the first"
    for name, key, value in acknowledged:
        assert served.json("api/items", name)["values"][key] == value


def test_words_are_found_in_queries_and_documents(served):
    found = served.json("api/found?words=SALT%20rope")["keys"]
    texts = served.json("api/texts?keys=" + ",".join(found))
    assert found
    assert all("salt, rope" in one["text"] for one in texts.values())
    of_query = served.json("api/found?words=%EC%96%B8%EC%A0%9C%20salt")["keys"]  # 언제, of the query alone
    assert set(of_query) <= set(found)
    assert served.json("api/found?words=nowhere")["keys"] == []


def test_a_log_that_was_spoiled_is_said_and_nothing_is_written(tmp_path):
    one = Served(tmp_path)
    key = one.keys()[1][0]
    one.log.path.write_text("{}\n")
    status, said = one.judge(key, 1)
    assert status == 500
    assert "judgements.jsonl:1" in said["error"]
    one.end()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host.invalid"])
def test_a_host_that_is_not_here(host):
    with pytest.raises(BadInput, match="Use an address of this machine"):
        ReviewServer([], host, 5050)


def test_a_taken_port_is_replaced(served):
    with ReviewServer([], "127.0.0.1", served.server.server_port) as other:
        assert other.server_port != served.server.server_port
