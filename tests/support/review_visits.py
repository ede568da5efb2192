"""`harness testset review` with somebody who visits its links, and then ends it."""

import contextlib
import json
import signal
import threading
import urllib.request

from harness.testset.review.server import ReviewServer


@contextlib.contextmanager
def visiting(monkeypatch):
    """Provide a function that names who visits the links of the next commands: visit -> None, called with them."""
    serve = ReviewServer.serve_forever
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def use(visit):
        def visited(server):
            threading.Thread(target=serve, args=(server, 0.02), daemon=True).start()
            try:
                visit(server.links)
            finally:
                server.shutdown()
            raise KeyboardInterrupt

        monkeypatch.setattr(ReviewServer, "serve_forever", visited)

    yield use
    for number, handler in before.items():
        signal.signal(number, handler)


def got(link, path, body=None):
    """The bytes at a path below a link; body: what is sent to it, as JSON."""
    request = urllib.request.Request(link + path, body and json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def asked(link, path, body=None):
    return json.loads(got(link, path, body))


def said(link, key, value):
    """Send a judgement; it is on the disk then."""
    body = {"key": key, "value": value, "before": None}
    assert asked(link, "api/judgements", body) == {"saved": value}
