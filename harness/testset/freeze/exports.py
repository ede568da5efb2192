"""A frozen test set in the forms that other tools read. What a form cannot say is left out, and counted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.data.files import json_text, optional_text
from harness.data.frozen import FROZEN, Frozen
from harness.data.trec import grade_text, judged_pairs, trec_qrels_lines
from harness.errors import BadInput, did_you_mean
from harness.storage.atomic import write_text
from harness.testset.judge.judgements import held, unfinished
from retrievers.base import Document, Qrels, Query, one_word


@dataclass(frozen=True)
class Content:
    """What is exported.

    answers: query_id -> a right answer in words, as far as known. at: when the last judgement was made, as ISO 8601.
    """

    documents: Sequence[Document]
    queries: Sequence[Query]
    qrels: Qrels
    answers: dict[str, str]
    at: str

    @classmethod
    def of(cls, source: Frozen) -> Content:
        answers = {one.query.query_id: one.answer for one in source.rows if one.answer}
        at = optional_text(source.manifest, "judged_until", str(source.path / FROZEN))
        return cls(source.documents(), source.queries(), source.qrels(), answers, at)

    def needing(self) -> list[Query]:
        """The labelled queries that need retrieval."""
        labelled = (one for one in self.queries if one.query_id in self.qrels.grades)
        return [one for one in labelled if self.qrels.needs_retrieval(one.query_id)]


@dataclass(frozen=True)
class Exported:
    """A form that was written. left_out: why -> how many queries have no labels in it."""

    name: str
    path: Path
    left_out: dict[str, int]


def check_formats(names: Sequence[str]) -> None:
    """BadInput unless they are names of forms, each once."""
    for name in names:
        if name not in FORMATS:
            raise BadInput(f"formats: {name!r:.60} is not one of {', '.join(FORMATS)}.{did_you_mean(name, FORMATS)}")
        if names.count(name) > 1:
            raise BadInput(f"formats: {name} is named twice. Remove one of them.")


def export_testset(folder: Path, names: Sequence[str]) -> list[Exported]:
    """Write a frozen test set in other forms, each into a folder of its own within it; those that are there already are
    replaced. folder: of the frozen test set."""
    if not names:
        return []
    content = Content.of(Frozen(path=str(folder)))
    found = []
    for name in names:
        with held(folder.parent, folder.name, "freezes"), unfinished(folder / name) as new:
            left_out = FORMATS[name](content, new)
            shutil.rmtree(folder / name, ignore_errors=True)
            new.rename(folder / name)
        found.append(Exported(name, folder / name, {why: count for why, count in left_out.items() if count}))
    return found


def _contest(content: Content, folder: Path) -> dict[str, int]:
    """documents.jsonl, eval.jsonl, qrels.jsonl: an empty list would say that a query needs no retrieval."""
    qrels = content.qrels
    labelled = [one for one in content.queries if one.query_id in qrels.grades and one.query_id not in qrels.unmet]
    write_text(folder / "documents.jsonl", json_text(
        {"docid": _document_id(one), "title": one.title, "src": one.source, "content": one.text}
        for one in content.documents
    ))  # fmt: skip
    write_text(folder / "eval.jsonl", json_text(
        {"eval_id": _query_id(one), "msg": [asdict(turn) for turn in one.turns]} for one in content.queries
    ))  # fmt: skip
    write_text(folder / "qrels.jsonl", json_text(
        {"eval_id": _query_id(one), "relevant": dict(qrels.grades[one.query_id])} for one in labelled
    ))  # fmt: skip
    return {"nothing relevant": len(qrels.unmet), "unanswerable": len(qrels.unanswerable)}


def _beir(content: Content, folder: Path) -> dict[str, int]:
    """corpus.jsonl, queries.jsonl, qrels/test.tsv, with grade 0 for what was judged and is not relevant."""
    for one in [*(document.doc_id for document in content.documents), *(query.query_id for query in content.queries)]:
        if any(letter in one for letter in "\t\r\n"):
            raise BadInput(f"formats: beir has no id with a tab or line break, such as {one!r:.60}. Leave beir out.")
    pairs = (f"{query}\t{document}\t{grade_text(grade)}\n" for query, document, grade in judged_pairs(content.qrels))
    (folder / "qrels").mkdir()
    write_text(folder / "corpus.jsonl", json_text(
        {"_id": one.doc_id, "title": one.title, "text": one.text} for one in content.documents
    ))  # fmt: skip
    write_text(folder / "queries.jsonl", json_text({"_id": one.query_id, "text": one.text} for one in content.queries))
    write_text(folder / "qrels" / "test.tsv", "".join(["query-id\tcorpus-id\tscore\n", *pairs]))
    return _without_retrieval(content)


def _trec(content: Content, folder: Path) -> dict[str, int]:
    """qrels.txt with grades from 0 on; topics.tsv {query_id, text}; documents.txt, the ids of all documents."""
    topics = (f"{one_word(one.query_id)}\t{_one_line(one.text)}\n" for one in content.queries)
    write_text(folder / "topics.tsv", "".join(topics))
    write_text(folder / "qrels.txt", "".join(f"{line}\n" for line in trec_qrels_lines(content.qrels)))
    write_text(folder / "documents.txt", "".join(f"{one_word(one.doc_id)}\n" for one in content.documents))
    return _without_retrieval(content)


def _autorag(content: Content, folder: Path) -> dict[str, int]:
    """corpus.parquet, qa.parquet. All relevant documents of a query count alike there, whatever their grades."""
    from pyarrow import Table, parquet

    qrels, answers = content.qrels, content.answers
    labelled = [one for one in content.queries if one.query_id in qrels.grades and one.query_id not in qrels.unmet]
    documents, contents = [one.doc_id for one in content.documents], [one.indexed_text for one in content.documents]
    at = _moment(content.at)
    metadata = [{"last_modified_datetime": at, "source": one.source} for one in content.documents]
    corpus = {"doc_id": documents, "contents": contents, "metadata": metadata}
    questions = {
        "qid": [one.query_id for one in labelled],
        "query": [one.text for one in labelled],
        "retrieval_gt": [[[doc_id] for doc_id in qrels.grades[one.query_id]] for one in labelled],
        "generation_gt": [[answers[one.query_id]] if one.query_id in answers else [] for one in labelled],
    }
    for name, columns in {"corpus": corpus, "qa": questions}.items():
        parquet.write_table(Table.from_pydict(columns, schema=_schema(name)), folder / f"{name}.parquet")
    return {"nothing relevant": len(qrels.unmet), "unanswerable": len(qrels.unanswerable)}


def _schema(name: str) -> Any:
    """The columns of AutoRAG's files, whose types an empty list does not tell."""
    import pyarrow as pa

    text = pa.string()
    if name == "corpus":
        metadata = pa.struct([("last_modified_datetime", pa.timestamp("us")), ("source", text)])
        return pa.schema([("doc_id", text), ("contents", text), ("metadata", metadata)])
    groups, answers = pa.list_(pa.list_(text)), pa.list_(text)
    return pa.schema([("qid", text), ("query", text), ("retrieval_gt", groups), ("generation_gt", answers)])


def _moment(text: str) -> datetime | None:
    """A time in UTC; None for what is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None)


def _without_retrieval(content: Content) -> dict[str, int]:
    """Queries that labels of pairs cannot express."""
    needing = len(content.needing())
    return {
        "no retrieval needed": len(content.qrels.grades) - needing,
        "unanswerable": len(content.qrels.unanswerable),
    }


def _query_id(one: Query) -> str | int:
    return one.query_id if one.native_id is None else one.native_id


def _document_id(one: Document) -> str | int:
    return one.doc_id if one.native_id is None else one.native_id


def _one_line(text: str) -> str:
    return " ".join(text.split())


FORMATS: dict[str, Callable[[Content, Path], dict[str, int]]] = {
    "contest": _contest,
    "beir": _beir,
    "autorag": _autorag,
    "trec": _trec,
}
