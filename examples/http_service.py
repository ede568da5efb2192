"""Is a search service better than BM25, and do the queries suffice to tell?

    python http_service.py

The service below counts the words that a query and a document share. To measure your own service, leave out `WORDS`,
`Service` and `server`, and give its address, the form of its requests, and the places of ids and scores in its replies.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import harness

DATA = ("dataset=sample", "experiment_name=service")  # your files: "dataset=contest", "dataset.path=data"
WORDS = {one.doc_id: {*one.indexed_text.split()} for one in harness.load_dataset(*DATA).documents}


class Service(BaseHTTPRequestHandler):
    """Answer {"q": "some words", "n": 10} with {"hits": [{"id": "d1", "score": 2}, ...]}."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        shared = {doc_id: len(words & {*asked["q"].split()}) for doc_id, words in WORDS.items()}
        best = sorted(shared, key=shared.get, reverse=True)[: asked["n"]]
        reply = json.dumps({"hits": [{"id": doc_id, "score": shared[doc_id]} for doc_id in best]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        """Keep the terminal free of requests."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
Thread(target=server.serve_forever, daemon=True).start()

service = harness.run(
    *DATA,
    "run_name=service",
    "retriever=http",
    f"retriever.http.url=http://127.0.0.1:{server.server_port}/search",
    'retriever.http.body={q: "{query}", n: "{k}"}',
    "retriever.http.ids=hits[*].id",
    "retriever.http.scores=hits[*].score",
)
bm25 = harness.run(*DATA, "run_name=bm25")
server.shutdown()

print(harness.compare(bm25, service))
print(f"Half of the requests took less than {service.measured['latency_p50_ms/http']:.1f} ms.")
