"""Readers of the files that people bring: one source class for each format.

A source has three lazy methods, `documents()`, `queries()` and `qrels()`, and `qrels_file`, which names the labels in
messages; its constructor's arguments are the keys of `dataset.` in a config. What is wrong with a file is a BadInput
that names file and line.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from harness.lines import (
    DAMAGED,
    as_id,
    field,
    finite,
    identifier,
    json_file,
    json_lines,
    no_rows,
    numbered_lines,
    once,
    opened,
    optional_text,
    required,
    unique_rows,
)
from retrievers.base import BadInput, Document, Qrels, Query, Turn, did_you_mean

ROLES = ("user", "assistant", "system")
_NO_TEXT = (
    "dataset=trec has labels alone, no documents and no queries: it serves `harness score`. To search, use "
    "dataset=beir or dataset=contest."
)

Grades = dict[str, dict[str, float]]


class Source(Protocol):
    """Where a data set comes from. Methods raise BadInput for what is wrong within one file."""

    @property
    def qrels_file(self) -> Path | None:
        """The file of the labels; None where there are none."""
        ...

    def documents(self) -> list[Document]: ...

    def queries(self) -> list[Query]: ...

    def qrels(self) -> Qrels | None: ...


class Contest:
    """JSON lines as in the contest on scientific questions.

    documents.jsonl {docid, src, content}; eval.jsonl {eval_id, msg: [{role, content}, ...]}, a question or a
    conversation; qrels.jsonl, which may be missing, {eval_id, relevant: [docid, ...] or {docid: grade}} with finite
    grades > 0, where an empty `relevant` says that the query needs no retrieval.
    path: the folder of the three. documents, queries, qrels: a file in place of one of them.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        documents: str | None = None,
        queries: str | None = None,
        qrels: str | None = None,
    ) -> None:
        self._path, self._documents, self._queries, self._qrels = path, documents, queries, qrels

    @property
    def qrels_file(self) -> Path | None:
        if not self._qrels and not self._path:
            return None
        file = _locate("qrels", self._qrels, self._path, "qrels.jsonl")
        return file if self._qrels or file.exists() else None

    def documents(self) -> list[Document]:
        path = _locate("documents", self._documents, self._path, "documents.jsonl")
        return [
            Document(
                doc_id, field(row, "content", str, where), source=optional_text(row, "src", where), native_id=native
            )
            for where, doc_id, native, row in unique_rows(path, json_lines(path), "docid")
        ]

    def queries(self) -> list[Query]:
        path = _locate("queries", self._queries, self._path, "eval.jsonl")
        return [
            Query(query_id, turns(row, where), native)
            for where, query_id, native, row in unique_rows(path, json_lines(path), "eval_id")
        ]

    def qrels(self) -> Qrels | None:
        path = self.qrels_file
        if path is None:
            return None
        rows = unique_rows(path, json_lines(path), "eval_id")
        return Qrels({query_id: _grades(row, where) for where, query_id, _, row in rows})


class Sample(Contest):
    """The small Korean data set that ships with the package."""

    def __init__(self) -> None:
        super().__init__(path=str(Path(__file__).parent / "sample"))


class Beir:
    """A BEIR folder: corpus.jsonl {_id, title, text}, queries.jsonl {_id, text}, qrels/SPLIT.tsv with its header.

    The queries are those with labels in the split, as is BEIR's custom, or all where there is no qrels folder. A grade
    <= 0 means judged and not relevant; these labels cannot say that a query needs no retrieval.
    path: the folder. split: train, dev or test. documents, queries, qrels: a file in place of one in the folder.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        split: str = "test",
        documents: str | None = None,
        queries: str | None = None,
        qrels: str | None = None,
    ) -> None:
        self._path, self._split = path, split
        self._documents, self._queries, self._qrels = documents, queries, qrels

    @property
    def qrels_file(self) -> Path | None:
        if not self._qrels and not self._path:
            return None
        file = _locate("qrels", self._qrels, self._path, f"qrels/{self._split}.tsv")
        if self._qrels or file.exists():
            return file
        if not file.parent.is_dir():
            return None
        splits = sorted({entry.name.partition(".tsv")[0] for entry in file.parent.glob("*.tsv*")})
        raise BadInput(f"{file}: there is no such file. dataset.split is one of: {', '.join(splits) or 'none'}.")

    def documents(self) -> list[Document]:
        path = _locate("documents", self._documents, self._path, "corpus.jsonl")
        return [
            Document(doc_id, field(row, "text", str, where), optional_text(row, "title", where), native_id=native)
            for where, doc_id, native, row in unique_rows(path, json_lines(path), "_id")
        ]

    def queries(self) -> list[Query]:
        path = _locate("queries", self._queries, self._path, "queries.jsonl")
        return [
            _question(query_id, field(row, "text", str, where), native)
            for where, query_id, native, row in unique_rows(path, json_lines(path), "_id")
            if self._labels is None or query_id in self._labels.grades
        ]

    def qrels(self) -> Qrels | None:
        return self._labels

    @cached_property
    def _labels(self) -> Qrels | None:
        return _judgements(self.qrels_file, _tsv_rows(self.qrels_file)) if self.qrels_file else None


class Trec:
    """TREC labels, lines `query_id iteration doc_id grade`, to score a TREC run with; they come without texts.

    A grade <= 0 means judged and not relevant; these labels cannot say that a query needs no retrieval.
    """

    def __init__(self, *, qrels: str) -> None:
        self.qrels_file = Path(qrels)

    def documents(self) -> list[Document]:
        raise BadInput(_NO_TEXT)

    def queries(self) -> list[Query]:
        raise BadInput(_NO_TEXT)

    def qrels(self) -> Qrels:
        return _judgements(self.qrels_file, _trec_rows(self.qrels_file))


class Squad:
    """SQuAD 1 and 2 and KorQuAD 1 JSON: the task is to find the paragraph in which a question was asked.

    Each distinct context is one document with its (first) article's title and the id `title#n`, its count within the
    title, in file order. A question that SQuAD 2 marks `is_impossible` has no answer in its context: unlabelled.
    """

    def __init__(self, *, path: str) -> None:
        self.qrels_file = Path(path)

    def documents(self) -> list[Document]:
        return self._read[0]

    def queries(self) -> list[Query]:
        return self._read[1]

    def qrels(self) -> Qrels:
        return Qrels(self._read[2], abstention=False)

    @cached_property
    def _read(self) -> tuple[list[Document], list[Query], Grades]:
        path = self.qrels_file
        documents, queries, grades = dict[str, Document](), list[Query](), Grades()
        counts, seen = Counter[str](), dict[str, str]()
        for title, context, paragraph, position in _paragraphs(path):
            if context not in documents:
                name = "_".join(title.split()) or "untitled"
                counts[name] += 1
                documents[context] = Document(f"{name}#{counts[name]}", context, title)
            for at, question in _objects(path, paragraph, "qas", f"{position}."):
                where = f"{path}:{at}"
                query_id, native = identifier(question, "id", where)
                once(seen, query_id, "question id", path, at)
                queries.append(_question(query_id, field(question, "question", str, where), native))
                impossible = question.get("is_impossible", False)
                if not isinstance(impossible, bool):
                    raise BadInput(f"{where}: is_impossible is {impossible!r:.60}, but must be true or false.")
                if not impossible:
                    grades[query_id] = {documents[context].doc_id: 1.0}
        if not documents or not queries:
            raise no_rows(path)
        return list(documents.values()), queries, grades


class Autorag:
    """AutoRAG's parquet files: corpus.parquet {doc_id, contents}, qa.parquet {qid, query, retrieval_gt}.

    retrieval_gt: lists of ids, nested or not; every id in it is relevant, and an empty one says that the query needs
    no retrieval. path: the folder of the two. corpus, qa: a file in place of one of them.
    """

    def __init__(self, *, path: str | None = None, corpus: str | None = None, qa: str | None = None) -> None:
        self._path, self._corpus, self._qa = path, corpus, qa

    @property
    def qrels_file(self) -> Path:
        return _locate("qa", self._qa, self._path, "qa.parquet")

    def documents(self) -> list[Document]:
        path = _locate("corpus", self._corpus, self._path, "corpus.parquet")
        return [
            Document(doc_id, field(row, "contents", str, where), native_id=native)
            for where, doc_id, native, row in unique_rows(path, _parquet_rows(path, "doc_id", "contents"), "doc_id")
        ]

    def queries(self) -> list[Query]:
        path = self.qrels_file
        return [
            _question(query_id, field(row, "query", str, where), native)
            for where, query_id, native, row in unique_rows(path, _parquet_rows(path, "qid", "query"), "qid")
        ]

    def qrels(self) -> Qrels:
        path, grades = self.qrels_file, Grades()
        for where, query_id, _, row in unique_rows(path, _parquet_rows(path, "qid", "retrieval_gt"), "qid"):
            groups = [ids if isinstance(ids, list) else [ids] for ids in field(row, "retrieval_gt", list, where)]
            ids = [as_id(one, "an id in retrieval_gt", where)[0] for group in groups for one in group]
            grades[query_id] = dict.fromkeys(ids, 1.0)
        return Qrels(grades)


def _question(query_id: str, text: str, native_id: int | None) -> Query:
    return Query(query_id, (Turn("user", text),), native_id)


def turns(row: Mapping[str, Any], where: str, key: str = "msg") -> tuple[Turn, ...]:
    """The conversation in row[key]: objects {role, content}, of which the user says at least one."""
    found = tuple(_turn(turn, where, key) for turn in field(row, key, list, where))
    if not any(turn.role == "user" for turn in found):
        raise BadInput(f"{where}: {key} has no turn of the user. Add one, or remove the query.")
    return found


def _turn(turn: Any, where: str, key: str) -> Turn:
    if not isinstance(turn, dict):
        raise BadInput(f"{where}: {key} holds {turn!r:.60}, but a turn is an object {{role, content}}.")
    role = field(turn, "role", str, where)
    if role not in ROLES:
        raise BadInput(f"{where}: role {role!r:.60} is none of {', '.join(ROLES)}.{did_you_mean(role, ROLES)}")
    return Turn(role, field(turn, "content", str, where))


def _grades(row: Mapping[str, Any], where: str) -> dict[str, float]:
    """`relevant` of a contest label: a list of ids, each of grade 1, or an object of grades."""
    relevant = required(row, "relevant", where)
    if isinstance(relevant, list):
        ids = [as_id(value, "an id in relevant", where)[0] for value in relevant]
        if len(set(ids)) < len(ids):
            raise BadInput(f"{where}: relevant names {Counter(ids).most_common(1)[0][0]!r:.60} twice. Remove one.")
        return dict.fromkeys(ids, 1.0)
    if not isinstance(relevant, dict):
        raise BadInput(f"{where}: relevant is {relevant!r:.60}, but must be a list of ids or an object of grades.")
    for doc_id, grade in relevant.items():
        as_id(doc_id, "an id in relevant", where)
        if isinstance(grade, bool) or not isinstance(grade, int | float) or not 0 < grade <= sys.float_info.max:
            raise BadInput(
                f"{where}: the grade of {doc_id!r:.60} is {grade!r:.60}, but must be a finite number > 0. Leave out "
                "what is not relevant."
            )
    return {doc_id: float(grade) for doc_id, grade in relevant.items()}


def _tsv_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """(line, query_id, doc_id, grade) of BEIR labels, whose first line names the columns."""
    for row, (number, line) in enumerate(numbered_lines(path)):
        fields = line.split("\t")
        if len(fields) != 3:
            raise BadInput(f"{path}:{number}: {len(fields)} fields, but needs query-id, corpus-id, score between tabs.")
        if row:
            yield number, fields[0], fields[1], fields[2]
        elif re.fullmatch(r"\s*[-+.\d]+\s*", fields[2]):
            raise BadInput(f"{path}:{number}: a label stands where the header query-id, corpus-id, score is expected.")


def _trec_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """(line, query_id, doc_id, grade) of TREC labels."""
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != 4:
            raise BadInput(f"{path}:{number}: {len(fields)} fields, but needs four: query_id iteration doc_id grade.")
        yield number, fields[0], fields[2], fields[3]


def _judgements(path: Path, rows: Iterable[tuple[int, str, str, str]]) -> Qrels:
    """Labels that judge (query, document) pairs; a query of which no document is relevant stays, empty."""
    grades: Grades = {}
    seen: dict[tuple[str, str], int] = {}
    for number, query_id, doc_id, grade in rows:
        where = f"{path}:{number}"
        as_id(query_id, "the query id", where)
        as_id(doc_id, "the document id", where)
        once(seen, (query_id, doc_id), "the label of", path, number)
        judged = grades.setdefault(query_id, {})
        if (value := finite(grade, "grade", where)) > 0:
            judged[doc_id] = value
    if not grades:
        raise no_rows(path)
    return Qrels(grades, abstention=False)


def _paragraphs(path: Path) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """(title, context, paragraph, place in the JSON) of every paragraph of a SQuAD file."""
    for at, article in _objects(path, json_file(path), "data", ""):
        title = optional_text(article, "title", f"{path}:{at}")
        for place, paragraph in _objects(path, article, "paragraphs", f"{at}."):
            where = f"{path}:{place}"
            yield title, field(paragraph, "context", str, where), paragraph, place


def _objects(path: Path, row: Mapping[str, Any], key: str, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every item of the list row[key]."""
    for i, item in enumerate(field(row, key, list, f"{path}:{prefix}".rstrip(".:"))):
        if not isinstance(item, dict):
            raise BadInput(f"{path}:{prefix}{key}[{i}] is {item!r:.60}, but must be an object.")
        yield f"{prefix}{key}[{i}]", item


def _parquet_rows(path: Path, *columns: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """("row n", {column: value}) of a parquet file, read in batches."""
    from pyarrow import ArrowException, parquet

    try:
        with opened(path) as file, parquet.ParquetFile(file) as table:
            names = dict.fromkeys(table.schema_arrow.names)
            for column in columns:
                required(names, column, str(path))
            rows = (row for batch in table.iter_batches(columns=list(columns)) for row in batch.to_pylist())
            yield from ((f"row {number}", row) for number, row in enumerate(rows, start=1))
    except (ArrowException, UnicodeDecodeError, *DAMAGED) as error:
        raise BadInput(f"{path}: not a parquet file that can be read ({error!s:.120}).") from None


def _locate(key: str, given: str | None, folder: str | None, name: str) -> Path:
    """The file of `dataset.<key>`: the one given, else `name` in the folder of `dataset.path`, gzipped or not."""
    if given:
        return Path(given)
    if not folder:
        raise BadInput(
            f"dataset.{key} is not given. Give dataset.{key}=FILE, or dataset.path=FOLDER with {name} in it."
        )
    if not Path(folder).is_dir():
        parent = Path(folder).absolute().parent
        near = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
        hint = did_you_mean(Path(folder).name, near) or f" Give the folder that holds {name}."
        what = "this is a file, not a folder" if Path(folder).exists() else "there is no such folder"
        raise BadInput(f"dataset.path={folder}: {what}.{hint}")
    path = Path(folder) / name
    zipped = path.with_name(path.name + ".gz")
    return zipped if zipped.exists() and not path.exists() else path
