"""Documents folders and test sets for tests, written without `harness prepare`."""

import hashlib
import json


def text_id(text):
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def pieces(text, size, overlap=0):
    """(start, end) of pieces of `size` characters; each begins `overlap` characters before the end of the last."""
    starts = range(0, max(1, len(text) - overlap), size - overlap)
    return [(start, min(start + size, len(text))) for start in starts]


def documents_folder(path, texts, spans):
    """A finished documents folder. texts: file name -> text. spans: text -> (start, end) of its documents.

    Equal documents of one file name are one document with several spans.
    """
    (path / "texts").mkdir(parents=True)
    rows = {}
    for name, text in texts.items():
        (path / "texts" / f"{text_id(text)}.txt").write_bytes(text.encode())
        for start, end in spans(text):
            content = text[start:end]
            doc_id = text_id(f"{name}\0{content}")
            row = rows.setdefault(
                doc_id, {"docid": doc_id, "title": name, "content": content, "src": name, "spans": []}
            )
            row["spans"].append({"text": text_id(text), "start": start, "end": end})
    (path / "documents.jsonl").write_text(lines(rows.values()))
    (path / "files.jsonl").write_text(lines({"path": name, "text": text_id(text)} for name, text in texts.items()))
    (path / "manifest.json").write_text('{"version": 1}')
    return path


def quoted(text, passage, grade=1, around=32):
    """The evidence of a passage that occurs once in a text."""
    start = text.index(passage)
    end = start + len(passage)
    place = {"text": text_id(text), "start": start, "end": end, "exact": passage, "grade": grade}
    return place | {"prefix": text[max(0, start - around) : start], "suffix": text[end : end + around]}


def query(query_id, question, evidence=(), kind=None):
    """A row of queries.jsonl; without evidence, one that needs no retrieval."""
    kind = kind or ("fact" if evidence else "none")
    turns = [{"role": "user", "content": question}]
    row = {"eval_id": query_id, "msg": turns, "kind": kind, "needs": kind != "none", "answer": "", "docid": ""}
    return row | {"evidence": list(evidence), "flags": []}


def folder_of_testset(path, queries, documents=None):
    """A finished test set. documents: path of the documents folder, relative to the test set."""
    path.mkdir(parents=True)
    (path / "queries.jsonl").write_text(lines(queries))
    manifest = {"version": 1} | ({"documents": {"path": documents}} if documents else {})
    (path / "testset.json").write_text(json.dumps(manifest))
    return path
