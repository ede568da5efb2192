"""Write a data set of generated documents, with queries and labels: a corpus of any size to measure with.

    python scripts/generate_corpus.py /tmp/g1M                                   # 1,000,000 documents of 60 words
    python scripts/generate_corpus.py /tmp/g5M --documents 5000000 --queries 500
    python scripts/generate_corpus.py /tmp/small --documents 2000 --format contest
    harness run dataset=beir dataset.path=/tmp/g1M retriever=bm25 tokenizer=whitespace

Documents are written as they are made, so that memory does not grow with their number. The same arguments give the
same files, and the first documents are the same however many follow. Words are named from the most common one, w0, and
drawn from a Zipf-Mandelbrot distribution over 100,000 words (exponent 1, shift 2.7). Ids are in no order. A query asks
for one document, by five of its words and three drawn like those of a document; it alone is labelled relevant.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

WORDS, BLOCK = 100_000, 10_000  # different words; documents made at a time
OF_DOCUMENT, OTHERS = 5, 3  # words of a query


@dataclass(frozen=True)
class Format:
    """The files of a data set format, and how a document, a query and a label are written."""

    documents: str
    queries: str
    labels: str
    header: str = ""

    def document(self, doc_id: str, text: str) -> str:
        names = ("_id", "text") if self is BEIR else ("docid", "content")
        return _line(dict(zip(names, (doc_id, text), strict=True)))

    def query(self, query_id: str, text: str) -> str:
        if self is BEIR:
            return _line({"_id": query_id, "text": text})
        return _line({"eval_id": query_id, "msg": [{"role": "user", "content": text}]})

    def label(self, query_id: str, doc_id: str) -> str:
        return f"{query_id}\t{doc_id}\t1\n" if self is BEIR else _line({"eval_id": query_id, "relevant": [doc_id]})


BEIR = Format("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "query-id\tcorpus-id\tscore\n")
CONTEST = Format("documents.jsonl", "eval.jsonl", "qrels.jsonl")


def doc_id(number: int) -> str:
    """The id of a document: different for each number below 2 ** 32, and in no order."""
    return f"d{number * 2_654_435_761 % 2**32:08x}"


def blocks(documents: int, words: int, seed: int) -> Iterator[tuple[int, np.ndarray, np.random.Generator]]:
    """(number of the first document, words int [BLOCK, words + OTHERS], random generator) of each block of documents.

    The last words of a row are for a query that asks for this document.
    """
    weights = 1 / (np.arange(WORDS) + 2.7)
    cumulative = np.cumsum(weights / weights.sum())
    for first in range(0, documents, BLOCK):
        rng = np.random.default_rng([seed, first])
        drawn = np.searchsorted(cumulative, rng.random((BLOCK, words + OTHERS)))
        yield first, np.minimum(drawn, WORDS - 1), rng


def write(folder: Path, form: Format, arguments: argparse.Namespace) -> None:
    """Write the three files of a data set."""
    (folder / form.labels).parent.mkdir(parents=True, exist_ok=True)
    names = np.array([f"w{i}" for i in range(WORDS)], dtype=object)
    asked = {i * arguments.documents // arguments.queries: f"q{i}" for i in range(arguments.queries)}
    with ExitStack() as files:
        documents, queries, labels = (
            files.enter_context((folder / name).open("w", encoding="utf-8"))
            for name in (form.documents, form.queries, form.labels)
        )
        labels.write(form.header)
        for first, drawn, rng in blocks(arguments.documents, arguments.words, arguments.seed):
            rows = names[drawn[: min(BLOCK, arguments.documents - first)]].tolist()
            documents.writelines(
                form.document(doc_id(number), " ".join(row[: arguments.words]))
                for number, row in enumerate(rows, start=first)
            )
            for number, row in enumerate(rows, start=first):
                if number in asked:
                    _write_query(asked[number], number, row, rng, (queries, labels), form)


def _write_query(
    query_id: str, number: int, row: list[str], rng: np.random.Generator, files: tuple[IO[str], IO[str]], form: Format
) -> None:
    """A query for a document and its label. row: the document's words and those that only its query has."""
    of_document = row[:-OTHERS]
    picked = rng.choice(len(of_document), min(OF_DOCUMENT, len(of_document)), replace=False).tolist()
    words = [*(of_document[i] for i in picked), *row[-OTHERS:]]
    files[0].write(form.query(query_id, " ".join(words)))
    files[1].write(form.label(query_id, doc_id(number)))


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("output", type=Path, metavar="OUT", help="folder to write; must not exist")
    reader.add_argument("--documents", type=int, default=1_000_000, help="how many (default: 1000000)")
    reader.add_argument("--words", type=int, default=60, help="in a document (default: 60)")
    reader.add_argument("--queries", type=int, default=200, help="how many (default: 200)")
    reader.add_argument("--seed", type=int, default=0, help="of the random numbers (default: 0)")
    reader.add_argument("--format", choices=["beir", "contest"], default="beir", help="(default: beir)")
    arguments = reader.parse_args()
    if not 1 <= arguments.queries <= arguments.documents < 2**32 or arguments.words < 1 or arguments.seed < 0:
        sys.exit("Give at least one word and one query, no more queries than documents, and a seed of at least 0.")
    if arguments.output.exists():
        sys.exit(f"{arguments.output} exists. Name a new folder.")
    unfinished = arguments.output.with_name(f"{arguments.output.name}.unfinished")
    write(unfinished, BEIR if arguments.format == "beir" else CONTEST, arguments)
    unfinished.rename(arguments.output)


if __name__ == "__main__":
    main()
