"""`harness testset review`: let people judge pooled documents, on a page or in workbooks."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import interruption
from harness.config.check import Invocation
from harness.config.commands import ReviewConfig
from harness.config.text import counted
from harness.data.documents_folder import DOCUMENTS
from harness.data.testset import read_testset_manifest
from harness.errors import BadInput
from harness.progress import stage
from harness.reports.next_steps import flag
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.testset.audit.auditing import AuditSample, draw, read_audit
from harness.testset.judge.judgements import JUDGEMENTS, JudgedSet, JudgementLog, judged_now, read_judged_set
from harness.testset.pool.pool import pooled_documents, require_documents
from harness.testset.review.desk import Desk, Item, ReviewLedger, items, reviewers_of
from harness.testset.review.server import ReviewServer
from harness.testset.review.workbook import Questions, read_workbook, write_workbook
from retrievers.base import Document, Query

WORKBOOK = "xlsx"  # the value of the key `via` for workbooks
OPEN, AUDIT = "open", "audit"  # values of the key `sample`
NOTHING = {
    AUDIT: "people have judged all drawn queries. To draw more, raise audit.queries. To compare people with the model, "
    "run `harness testset audit`",
    OPEN: 'there are no disagreements and no "cannot tell" answers left. `harness testset freeze` shows other '
    "open questions",
    "repair": "no pair looks suspicious: either no model has judged (`harness testset judge`), or people have judged "
    "all suspicious pairs",
    "all": "people have judged all pooled pairs",
}


@dataclass(frozen=True)
class ReviewWork:
    config: ReviewConfig
    judged: JudgedSet
    audit: AuditSample | None

    @classmethod
    def read(cls, config: ReviewConfig) -> ReviewWork:
        """Read the test set. For an audit, also draw the queries. Raise BadInput unless the test set has a pool."""
        folder, audit = config.testset, config.audit
        judged = read_judged_set(folder)
        drawn = config.sample == AUDIT and config.from_ is None
        return cls(config, judged, draw(folder, judged, audit.queries, audit.seed) if drawn else read_audit(folder))

    @property
    def pilot(self) -> list[str]:
        """Return a list with a sentence about the queries that are not drawn yet; [] if all are drawn."""
        drawn = len(self.audit.drawn) if self.audit and self.config.sample == AUDIT else None
        wanted = min(self.config.audit.queries, len(self.judged.queries))
        if drawn is None or drawn >= wanted:
            return []
        return [
            f"These are the first {drawn:,} of {wanted:,} queries. Once people have judged them, the same command "
            "draws the rest, with more queries from the groups in which people and the model disagree more."
        ]

    @property
    def queries(self) -> dict[str, Query]:
        return {query_id: one.query for query_id, one in self.judged.queries.items()}

    def new(self, name: str) -> dict[Item, str]:
        return items(self.config.sample, name, self.judged, self.audit)

    def asked(self, name: str, by: str) -> list[Item]:
        """Return a reviewer's items for the sample: first the items that this reviewer has judged, then new items."""
        pooled = {(one.query_id, one.doc_id) for one in self.judged.pairs}
        mine = [
            Item(one.query_id, one.doc_id, one.round, one.sample, one.pi)
            for one in self.judged.judgements
            if one.by == by and one.sample == self.config.sample and (one.doc_id is None or one.pair in pooled)
        ]
        return list(dict.fromkeys([*mine, *self.new(name)]))

    def documents(self, asked: Iterable[Item]) -> dict[str, Document]:
        """Return the documents of the items, by id. Raise BadInput if there are no items or a document is missing."""
        asked = [*asked]
        if not asked:
            raise BadInput(
                f"testset={self.config.testset}, sample={self.config.sample}: {NOTHING[self.config.sample]}."
            )
        wanted = {one.doc_id for one in asked if one.doc_id is not None}
        folder = pooled_documents(self.config.testset, self.config.documents)
        found = {one.document.doc_id: one.document for one in folder.chunks() if one.document.doc_id in wanted}
        require_documents(folder, wanted, found)
        return found


def review(config: ReviewConfig, invocation: Invocation) -> CommandAnswer:
    """Serve the review page until Ctrl-C and print its links. With via=xlsx, write or read a workbook instead. Raise
    BadInput if there is nothing to judge, or for mistakes in a workbook."""
    check_keys(config)
    reviewers = reviewers_of(config.reviewer, adjudicate=config.sample == OPEN)
    if config.via == WORKBOOK:
        if len(reviewers) > 1:
            raise BadInput("reviewer names several people, but a workbook is for one. Write a workbook for each.")
        [(name, by)] = reviewers.items()
        return _read_workbook(config, config.from_, name) if config.from_ else _write_workbook(config, name, by)
    with stage("reading the test set"):
        work = ReviewWork.read(config)
        asked = {by: work.asked(name, by) for name, by in reviewers.items()}
        documents = work.documents(one for found in asked.values() for one in found)
    ledger = ReviewLedger(JudgementLog(config.testset), work.queries, [*asked])
    desks = [Desk(by, found, work.judged, documents, ledger) for by, found in asked.items()]
    with ReviewServer(desks, config.host, config.port) as server:
        document = {"testset": str(config.testset), "sample": config.sample, "links": server.links}
        with interruption.until_interrupted():
            lines = [
                *work.pilot,
                "Each reviewer has a separate link. It works until the server stops:",
                *(f"  {name}: {link}" for name, link in server.links.items()),
                "The page shows a judgement as saved once it is on disk. Press Ctrl-C to stop the server.",
            ]
            CommandAnswer(document, Report("", files=lines)).emit(config.format)
            server.serve_forever()
        ledger.close()
    if config.format == "text":
        CommandAnswer({}, _stopped(work, desks, invocation)).emit("text")
    return CommandAnswer(document, None)


def check_keys(config: ReviewConfig) -> None:
    """Raise BadInput if the config keys for workbooks do not fit together or are given without via=xlsx."""
    output, source = config.output, config.from_
    if config.via != WORKBOOK and (output or source):
        name = "output" if output else "from"
        raise BadInput(f"{name}={output or source}, but via={config.via}: only via={WORKBOOK} uses a file.")
    if config.via == WORKBOOK and bool(output) == bool(source):
        what = "both are given" if output else "neither is given"
        raise BadInput(f"via={WORKBOOK} needs output=FILE to write a workbook, or from=FILE to read one: {what}.")


def _read_workbook(config: ReviewConfig, path: Path, name: str) -> CommandAnswer:
    """Read a workbook and log its judgements: all of them, or none if the workbook has a mistake."""
    folder = config.testset
    read_testset_manifest(folder, "testset")  # Check the folder first: locking the log would create it.
    with stage(f"reading {path}"), JudgementLog(folder).appending() as add:
        work = ReviewWork.read(config)
        found = read_workbook(path, name, work.judged, work.audit, judged_now())
        add(*found.new)
    counts = {key: getattr(found, key) for key in ("changed", "same", "empty", "kept")}
    document = {"testset": str(folder), "from": str(path), "reviewer": name, "new": len(found.new), **counts}
    changed = f"; {found.changed:,} of them replace earlier judgements by {name}" if found.changed else ""
    lines = [f"{counted(found.same, 'answer')} had been read before."] if found.same else []
    if found.empty:
        kept = f". {name} has judged {found.kept:,} of them before, and these judgements stay" if found.kept else ""
        lines.append(f"{counted(found.empty, 'row')} without an answer{kept}.")
    steps = [
        _command("review", config, "via=xlsx", f"reviewer={name}", "output=FILE.xlsx") + "    # the remaining items",
        _command("audit", config),
    ]
    title = f"{path}: {counted(len(found.new), 'judgement')} added to {folder / JUDGEMENTS}{changed}."
    return CommandAnswer(document, Report(title, files=lines, steps=steps))


def _write_workbook(config: ReviewConfig, name: str, by: str) -> CommandAnswer:
    path = Path(config.output or "")
    with stage("reading the test set"):
        work = ReviewWork.read(config)
        asked = work.new(name)
        documents = work.documents(asked)
    place = str(pooled_documents(config.testset, config.documents).path / DOCUMENTS)
    with stage(f"writing {path}"):
        write_workbook(path, Questions(by, config.sample, [*asked], work.queries, documents, place))
    needs = sum(one.doc_id is None for one in asked)
    pairs, queries = len(asked) - needs, len({one.query_id for one in asked})
    why = Counter(asked.values()).most_common()
    about = {"testset": str(config.testset), "output": str(path), "reviewer": name, "sample": config.sample}
    document = {**about, "queries": queries, "needs": needs, "pairs": pairs, "reasons": dict(why)}
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in why)
    title = (
        f"{path}: {counted(queries, 'query')}, with {counted(needs, 'question')} on the need for retrieval and "
        f"{counted(pairs, 'document')} to grade ({reasons})."
    )
    lines = [*work.pilot, "The workbook shows neither who retrieved a document nor how others judged it."]
    step = _command("review", config, "via=xlsx", f"reviewer={name}", f"from={path}")
    return CommandAnswer(document, Report(title, files=lines, steps=[f"{step}    # once the workbook is filled in"]))


def _command(verb: str, config: ReviewConfig, *words: str) -> str:
    return shlex.join(["harness", "testset", verb, f"testset={config.testset}", *words])


def _stopped(work: ReviewWork, desks: Sequence[Desk], invocation: Invocation) -> Report:
    config, done = work.config, {desk.name: desk.counts() for desk in desks}
    present = ReviewWork(config, read_judged_set(config.testset), work.audit)
    words, steps = flag(invocation.config_dir), []
    if work.pilot or any(map(present.new, done)):
        names = f"[{','.join(done)}]" if len(done) > 1 else "".join(done)
        again = _command("review", config, *words, f"reviewer={names}", f"sample={config.sample}")
        steps.append(f"{again}    # continue")
    if any(judged for judged, _ in done.values()):
        step = _command("audit", config, *words) if config.sample == AUDIT else ""
        steps.append(step or _command("freeze", config, *words, "leave_out=true"))
    lines = [f"{name}: {judged:,} of {every:,} judged." for name, (judged, every) in done.items()]
    return Report("", files=lines, steps=steps)
