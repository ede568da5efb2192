"""Frozen test sets, and their export to other tools.

The files of a frozen test set never change. They have labels from all judgements and, for honest estimates, labels by
the model alone and by people alone. An export reports for how many queries its format cannot express the labels.
"""

from __future__ import annotations

import glob
import hashlib
import json
import secrets
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from harness.config.text import counted
from harness.data import frozen
from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.data.files import field, json_file, json_text, optional_text, required, sha256_of
from harness.data.frozen import FROZEN, Frozen, judged_documents, read_frozen
from harness.data.labels import UNANSWERABLE, Label, label_row
from harness.data.qrels import Qrels
from harness.data.testset import EvidencedQuery, span_qrels
from harness.data.trec import grade_text, judged_pairs, trec_qrels_lines
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.storage.typed import encoded
from harness.testset.audit.auditing import AGREEMENT, AuditSample, blind, read_audit
from harness.testset.judge.judgements import BASES, JUDGEMENTS, LLM, JudgedSet, held, read_judged_set
from harness.testset.pool.pool import DocumentsPlace, pooled_documents, require_documents
from harness.testset.review.resolution import Question, Resolved, What, resolve
from retrievers.base import Document, Query, one_word

_MISSING = ("unjudged", "no document judged", "not pooled")  # open questions that leave labels by the model incomplete


@dataclass(frozen=True)
class Checks:
    """Labels by the model and by people, as in `Checked`. why: the reason why there are no labels, or ""."""

    model: Sequence[Label] = ()
    people: Sequence[Label] = ()
    strata: Mapping[str, str] | None = None
    why: str = ""


@dataclass(frozen=True)
class Material:
    """Everything that a frozen test set is made from. sample: None if no queries were drawn for an audit."""

    judged: JudgedSet
    folder: DocumentsFolder
    chunks: Sequence[Chunk]
    sample: AuditSample | None
    relevant_from: int

    @classmethod
    def read(cls, testset: Path, documents: Path | None, relevant_from: int) -> Material:
        """Read the material. Raise BadInput if the documents folder lacks judged documents."""
        judged, folder = read_judged_set(testset), pooled_documents(testset, documents)
        found = cls(judged, folder, list(folder.chunks()), read_audit(testset), relevant_from)
        require_documents(folder, judged_documents(found.labels), {one.document.doc_id for one in found.chunks})
        return found

    @cached_property
    def resolved(self) -> Resolved:
        return self._resolved([*self.judged.queries.values()])

    def _resolved(self, queries: Sequence[EvidencedQuery], by: Literal["all", "model", "people"] = "all") -> Resolved:
        return resolve(self.judged.judgements, queries, self.judged.pairs, self.relevant_from, by)

    @cached_property
    def kept(self) -> dict[str, EvidencedQuery]:
        """Return the queries without open questions, by id."""
        settled = self.resolved.settled
        return {query_id: one for query_id, one in self.judged.queries.items() if query_id in settled}

    @cached_property
    def labels(self) -> list[Label]:
        return [self.resolved.label(one) for one in self.kept.values()]

    @property
    def checked(self) -> list[str]:
        """Return the drawn queries that people have checked in full, as `harness testset audit` counts them."""
        judged, drawn = blind(self.judged), self.sample.drawn if self.sample else ()
        return [one for one in drawn if one in judged.queries and judged.checked(one)]

    @cached_property
    def checks(self) -> Checks:
        if not any(LLM in one.basis.split("+") for one in self.labels):
            return Checks(why="no label comes from a model")
        if self.sample is None:
            return Checks(why="no queries were drawn for people to check")
        chosen, strata = set(self.sample.drawn), self.sample.strata
        people = self._resolved([one for query_id, one in self.kept.items() if query_id in chosen], "people")
        if not (settled := people.settled):
            return Checks(why="people have completed none of the queries that were drawn")
        model = self._resolved([*self.kept.values()], "model")
        if lacking := {one.query_id for one in model.open if one.what in _MISSING}:
            return Checks(why=f"the model has not judged all pooled documents of {len(lacking):,} queries")
        return Checks(
            model=[model.label(one) for one in self.kept.values()],
            people=[people.label(one) for query_id, one in self.kept.items() if query_id in settled],
            strata={query_id: strata[query_id] for query_id in self.kept if query_id in strata},
        )


def snapshot(
    material: Material, version: int, agreement: Mapping[str, Any] | None, output: Path
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return (file -> content, the content of `frozen.json`). agreement: from `read_agreement`. output: new folder."""
    checks, kept = material.checks, material.kept
    placed = span_qrels([*kept.values()], material.chunks, material.folder)
    sought = {one.query_id for one in material.labels if one.needs}

    def rows(labels: Iterable[Label]) -> Iterator[dict[str, Any]]:
        return (label_row(one, kept[one.query_id].query.native_id) for one in labels)

    texts = {
        frozen.QUERIES: json_text(
            {"eval_id": _id(query_id, one.query), "msg": [*map(asdict, one.query.turns)]}
            | {"kind": one.kind, "answer": one.answer}
            | {name: value for name, value in one.query.attributes.items() if name not in ("kind", "needs")}
            for query_id, one in kept.items()
        ),
        frozen.LABELS: json_text(rows(material.labels)),
        frozen.EVIDENCE: json_text(
            {"eval_id": _id(query_id, kept[query_id].query), "evidence": encoded(pieces)}
            for query_id, pieces in placed.evidence.items()
            if query_id in sought
        ),
    }
    if (strata := checks.strata) is not None:
        texts[frozen.MODEL_LABELS] = json_text(rows(checks.model))
        pairs = zip(rows(checks.people), checks.people, strict=True)
        texts[frozen.CHECKED_LABELS] = json_text(row | {"stratum": strata[one.query_id]} for row, one in pairs)
    documents = {chunk.document.doc_id: chunk.document for chunk in material.chunks}
    counting = [one for one in material.judged.judgements if one.query_id in kept]
    manifest = {
        "format": frozen.FORMAT,
        "version": version,
        "judged_until": max((one.at for one in counting), default=None),
        "relevant_from": material.relevant_from,
        "documents": {
            **encoded(DocumentsPlace.of(material.folder, output)),
            "judged": frozen.documents_digest(documents[name] for name in judged_documents(material.labels)),
        },
        "counts": counts(material),
        "models": sorted({one.judge for one in counting if one.basis == LLM}),
        "people": len({one.judge for one in counting if one.basis != LLM}),
        "agreement": agreement,
        "strata": strata,
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    }
    return texts, {**manifest, "sha256": frozen.manifest_digest(manifest)}


def read_agreement(folder: Path) -> dict[str, Any] | None:
    """Return the results of `harness testset audit` for the manifest; None if no audit has run. The key
    `stale` says whether judgements have been added since the audit."""
    path = folder / AGREEMENT
    if not path.exists():
        return None
    content, where = json_file(path), str(path)
    compared = {key: content[key] for key in ("model", "again") if isinstance(content.get(key), Mapping)}
    checked = field(field(content, "progress", dict, where), "checked", list, where)
    return {
        "stale": content.get("judgements") != sha256_of(folder / JUDGEMENTS),
        "relevant_from": required(content, "relevant_from", where),
        "checked": len(checked),
        "models": required(content, "models", where),
        **{key: one.get("statistics") for key, one in compared.items()},
        "alpha": content.get("alpha"),
    }


def counts(material: Material) -> dict[str, Any]:
    """Return numbers of queries, pairs and judgements, as plain JSON."""
    labels, resolved = material.labels, material.resolved
    needing = [one for one in labels if one.needs]
    answerable = [one for one in needing if one.kind != UNANSWERABLE]
    pairs = Counter(grade.basis for one in needing for grade in resolved.grades[one.query_id].values())
    return {
        "queries": len(labels),
        "left_out": len(material.judged.queries) - len(labels),
        "kinds": dict(sorted(Counter(one.kind for one in labels).items())),
        "pairs": {basis: pairs[basis] for basis in BASES},
        "needs": dict(sorted(Counter(resolved.needs[one.query_id].basis for one in labels).items())),
        "judged_per_query": _spread([len(resolved.grades[one.query_id]) for one in needing]),
        "relevant_per_query": _spread([len(one.relevant) for one in answerable]),
        "without_relevant": sum(not one.relevant for one in answerable),
        "checked": len(material.checked),
        "drawn": len(material.sample.drawn) if material.sample else 0,
    }


def write_frozen(output: Path, texts: Mapping[str, str], manifest: Mapping[str, Any]) -> bool:
    """Write a frozen test set to a new folder. Return False if the folder has the same test set already. Raise BadInput
    if the folder has anything else."""
    if output.exists():
        _require_same(output, manifest)
        return False
    output.parent.mkdir(parents=True, exist_ok=True)
    with held(output.parent, output.name, "freezes"), _unfinished(output) as new:
        if output.exists():  # Another process has frozen it meanwhile.
            _require_same(output, manifest)
            return False
        for name, text in texts.items():
            write_text(new / name, text)
        write_text(new / FROZEN, json.dumps(manifest, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        new.rename(output)
    return True


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """Remove folders that killed processes have left. Then yield an empty folder beside the target, for the caller to
    fill and rename. If it was not renamed, remove it. The caller must hold the lock of the target."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.unfinished"):
        shutil.rmtree(left, ignore_errors=True)
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}.unfinished")
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_same(output: Path, manifest: Mapping[str, Any]) -> None:
    if not output.is_dir():
        raise BadInput(f"{output}: this is a file. Name a folder: output=FOLDER.")
    if not (output / FROZEN).is_file():
        raise BadInput(
            f"{output}: the folder exists already and has no {FROZEN}. Move it away, or freeze into another folder: "
            "output=FOLDER."
        )
    there, files = read_frozen(output, "output"), manifest["files"]
    if there["sha256"] == manifest["sha256"]:
        return
    other = [name for name in files if there["files"].get(name) != files[name]]
    known = [key for key in manifest if key not in ("files", "sha256")]
    other += [f"{key} in {FROZEN}" for key in known if there.get(key) != manifest[key]]
    raise BadInput(
        f"{output} is frozen already and differs ({', '.join(other[:4])}). A frozen test set never changes. Freeze the "
        f"present judgements as version={manifest['version'] + 1}."
    )


def _id(text: str, one: Query | Document) -> str | int:
    """Return the id as its file has it: a string or a whole number. text: the id as a string."""
    return text if one.native_id is None else one.native_id


def _spread(numbers: Sequence[int]) -> dict[str, float]:
    if not numbers:
        return {"least": 0, "mean": 0.0, "most": 0}
    return {"least": min(numbers), "mean": round(sum(numbers) / len(numbers), 2), "most": max(numbers)}


SHOWN = 3  # maximum number of open questions of each kind in a message
_ADJUDICATE = "harness testset review testset={testset} reviewer=NAME sample=open"
_JUDGE = "harness testset judge testset={testset} model=NAME"
_OPEN: dict[What, tuple[str, str]] = {  # kind of question -> (its meaning, how to settle it)
    "not pooled": ("no document is pooled", "harness testset pool testset={testset} experiment_name=NAME"),
    "no document judged": ("no document is judged", _JUDGE),
    "unjudged": ("pooled, and not judged", _JUDGE),
    "cannot tell": ("cannot tell", _ADJUDICATE),
    "people disagree": ("people disagree", _ADJUDICATE),
    "answered": (
        "answered, though the query is unanswerable",
        "correct its kind and evidence in {testset}/queries.jsonl, or, if the document does not answer it, "
        + _ADJUDICATE,
    ),
}


def open_questions(questions: Sequence[Question], testset: Path | None = None) -> Iterator[str]:
    """Yield a line for each kind of open question. testset: folder of the test set, to name the commands that settle
    them."""
    for what, (meaning, settled) in _OPEN.items():
        if some := [one for one in questions if one.what == what]:
            names = [" / ".join(filter(None, (one.query_id, one.doc_id))) for one in some[:SHOWN]]
            shown = ", ".join([*names, "…"] if len(some) > SHOWN else names)
            how = f": {settled.format(testset=shlex.quote(str(testset)))}" if testset else ""
            yield f"{len(some):>7,}  {meaning} ({shown}){how}"


def refuse_open(questions: Sequence[Question], queries: int, testset: Path) -> None:
    """Raise BadInput if there are open questions. queries: number of queries in the test set."""
    if not questions:
        return
    left = queries - len({one.query_id for one in questions})
    rest = (
        f"Settle them, or leave these queries out of this version: leave_out=true keeps {left:,} of "
        f"{counted(queries, 'query')}."
        if left
        else "Settle them: every query has an open question."
    )
    listed = "\n".join(open_questions(questions, testset))
    raise BadInput(f"testset={testset} has {counted(len(questions), 'open question')}:\n{listed}\n{rest}")


@dataclass(frozen=True)
class Content:
    """The content of an export. answers: query_id -> right answer, if known. at: time of the last judgement, in ISO
    8601."""

    documents: Sequence[Document]
    queries: Sequence[Query]
    qrels: Qrels
    answers: dict[str, str]
    at: str

    @property
    def labelled(self) -> list[Query]:
        """Return the queries with labels, except those that need retrieval but have no relevant document."""
        unmet = self.qrels.unmet
        return [one for one in self.queries if one.query_id in self.qrels.grades and one.query_id not in unmet]

    def left_out(self, retrieval: bool) -> dict[str, int]:
        """Return reason -> number of queries without labels. retrieval: whether the format assumes that all queries
        need retrieval."""
        qrels, found = self.qrels, {"nothing relevant": len(self.qrels.unmet)}
        if retrieval:
            found = {"no retrieval needed": sum(not qrels.needs_retrieval(query_id) for query_id in qrels.grades)}
        return {**found, "unanswerable": len(qrels.unanswerable)}


@dataclass(frozen=True)
class Exported:
    """An export. left_out: reason -> number of queries without labels in the export."""

    name: str
    path: Path
    left_out: dict[str, int]


def export_testset(folder: Path, names: Sequence[str]) -> list[Exported]:
    """Export a frozen test set to other formats: each to a subfolder of its name, in place of an earlier export."""
    if not names:
        return []
    source = Frozen(path=str(folder))
    answers = {one.query.query_id: one.answer for one in source.rows if one.answer}
    at = optional_text(source.manifest, "judged_until", str(folder / FROZEN))
    content = Content(source.documents(), source.queries(), source.qrels(), answers, at)
    found = []
    for name in names:
        with held(folder.parent, folder.name, "freezes"), _unfinished(folder / name) as new:
            FORMATS[name](content, new)
            shutil.rmtree(folder / name, ignore_errors=True)
            new.rename(folder / name)
        left_out = content.left_out(retrieval=name in ("beir", "trec"))
        found.append(Exported(name, folder / name, {why: count for why, count in left_out.items() if count}))
    return found


def _contest(content: Content, folder: Path) -> None:
    """Write the contest's files. Queries that need retrieval but have no relevant document get no label, since an empty
    label means that no retrieval is needed."""
    write_text(folder / "documents.jsonl", json_text(
        {"docid": _id(one.doc_id, one), "title": one.title, "src": one.source, "content": one.text}
        for one in content.documents
    ))  # fmt: skip
    write_text(folder / "eval.jsonl", json_text(
        {"eval_id": _id(one.query_id, one), "msg": [asdict(turn) for turn in one.turns]} for one in content.queries
    ))  # fmt: skip
    write_text(folder / "qrels.jsonl", json_text(
        {"eval_id": _id(one.query_id, one), "relevant": dict(content.qrels.grades[one.query_id])}
        for one in content.labelled
    ))  # fmt: skip


def _beir(content: Content, folder: Path) -> None:
    """Write BEIR's files, with grade 0 for documents that were judged not relevant."""
    for one in [*(document.doc_id for document in content.documents), *(query.query_id for query in content.queries)]:
        if any(letter in one for letter in "\t\r\n"):
            raise BadInput(f"formats: beir allows no tab or line break in ids, as in {one!r:.60}. Leave beir out.")
    pairs = (f"{query}\t{document}\t{grade_text(grade)}\n" for query, document, grade in judged_pairs(content.qrels))
    (folder / "qrels").mkdir()
    write_text(folder / "corpus.jsonl", json_text(
        {"_id": one.doc_id, "title": one.title, "text": one.text} for one in content.documents
    ))  # fmt: skip
    write_text(folder / "queries.jsonl", json_text({"_id": one.query_id, "text": one.text} for one in content.queries))
    write_text(folder / "qrels" / "test.tsv", "".join(["query-id\tcorpus-id\tscore\n", *pairs]))


def _trec(content: Content, folder: Path) -> None:
    """Write qrels.txt with grades of 0 and up, topics.tsv {query_id, text}, and documents.txt with all document ids."""
    topics = (f"{one_word(one.query_id)}\t{' '.join(one.text.split())}\n" for one in content.queries)
    write_text(folder / "topics.tsv", "".join(topics))
    write_text(folder / "qrels.txt", "".join(f"{line}\n" for line in trec_qrels_lines(content.qrels)))
    write_text(folder / "documents.txt", "".join(f"{one_word(one.doc_id)}\n" for one in content.documents))


def _autorag(content: Content, folder: Path) -> None:
    """Write AutoRAG's files. All relevant documents of a query count alike, whatever their grades."""
    import pyarrow as pa
    from pyarrow import parquet

    qrels, answers, labelled = content.qrels, content.answers, content.labelled
    try:
        at = datetime.fromisoformat(content.at).astimezone(UTC).replace(tzinfo=None)
    except ValueError:  # Nothing was judged.
        at = None
    metadata = [{"last_modified_datetime": at, "source": one.source} for one in content.documents]
    text = pa.string()  # The types are given, since pyarrow cannot infer them from empty lists.
    corpus = {
        "doc_id": pa.array([one.doc_id for one in content.documents], text),
        "contents": pa.array([one.indexed_text for one in content.documents], text),
        "metadata": pa.array(metadata, pa.struct([("last_modified_datetime", pa.timestamp("us")), ("source", text)])),
    }
    relevant = [[[doc_id] for doc_id in qrels.grades[one.query_id]] for one in labelled]
    right = [[answers[one.query_id]] if one.query_id in answers else [] for one in labelled]
    questions = {
        "qid": pa.array([one.query_id for one in labelled], text),
        "query": pa.array([one.text for one in labelled], text),
        "retrieval_gt": pa.array(relevant, pa.list_(pa.list_(text))),
        "generation_gt": pa.array(right, pa.list_(text)),
    }
    for name, columns in {"corpus": corpus, "qa": questions}.items():
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet")


FORMATS = {"contest": _contest, "beir": _beir, "autorag": _autorag, "trec": _trec}
