"""`harness testset review`: people judge what was pooled, and every judgement goes into `judgements.jsonl`."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.testset import review_workbook
from harness.config.check import Invocation
from harness.config.commands import ReviewConfig
from harness.config.text import counted
from harness.data.documents_folder import DOCUMENTS
from harness.data.testset import read_manifest
from harness.errors import BadInput
from harness.progress import stage
from harness.reports import terminal
from harness.reports.next_steps import flag
from harness.testset.audit_sample import AuditSample, draw, read_audit
from harness.testset.judged_set import JudgedSet, read_judged_set
from harness.testset.judgements import JudgementLog
from harness.testset.pool import documents_of
from harness.testset.review.desk import Desk, Reviewer, ReviewMaterial, reviewers_of
from harness.testset.review.ledger import ReviewLedger, Target, Value, value_of
from harness.testset.review.server import ReviewServer
from harness.testset.review_items import AskedItems, Item, items
from harness.testset.workbook import Questions
from retrievers.base import Document, Query

if TYPE_CHECKING:
    from rich.console import Console

OPEN, AUDIT = "open", "audit"  # samples


@dataclass(frozen=True)
class ReviewWork:
    """What there is to judge. folder: of the test set. sample: of the config."""

    folder: Path
    sample: str
    judged: JudgedSet
    audit: AuditSample | None

    def pilot(self, size: int) -> str:
        """A sentence on the queries that are not drawn yet; empty if all are. size: of the sample in the end."""
        drawn = len(self.audit.drawn) if self.audit and self.sample == AUDIT else None
        wanted = min(size, len(self.judged.queries))
        if drawn is None or drawn >= wanted:
            return ""
        return (
            f"These are the first {drawn:,} of {wanted:,} queries. Once people have judged them, the same command "
            "draws the others, more of them where people and the model differ more."
        )

    @property
    def queries(self) -> dict[str, Query]:
        return {query_id: one.query for query_id, one in self.judged.queries.items()}

    def new(self, reviewer: Reviewer) -> AskedItems:
        """What a reviewer is to judge."""
        return items(self.sample, reviewer.name, self.judged, self.audit)

    def asked(self, reviewer: Reviewer) -> list[Item]:
        """What a reviewer is to judge, and what the reviewer has judged for the same sample, to look at it again."""
        new = self.new(reviewer).items
        pooled = {(one.query_id, one.doc_id) for one in self.judged.pairs}
        mine = [
            Item(one.query_id, one.doc_id, one.round, one.sample, one.pi)
            for one in self.judged.judgements
            if one.by == reviewer.by and one.sample == self.sample and (one.doc_id is None or one.pair in pooled)
        ]
        return list(dict.fromkeys([*mine, *new]))


def review(config: ReviewConfig, invocation: Invocation) -> dict[str, Any]:
    """Serve the page until Ctrl-C, and print its links; or write a workbook, or read one. BadInput if there is nothing
    to judge, and for a workbook in which something is wrong."""
    review_workbook.check_keys(config)
    reviewers = reviewers_of(config.reviewer, adjudicates=config.sample == OPEN)
    if config.via == review_workbook.WORKBOOK:
        return _workbook(config, reviewers)
    with stage("reading the test set"):
        work = _work(config)
        asked = {one: work.asked(one) for one in reviewers}
        _require(work, asked.values())
        documents = _documents(config, work, asked.values())
    ledger = ReviewLedger(JudgementLog(work.folder), work.queries, [one.by for one in reviewers])
    material = ReviewMaterial(work.queries, documents, _given(work, asked.values()) if work.sample == OPEN else {})
    desks = [Desk(one, found, material, ledger) for one, found in asked.items()]
    with ReviewServer(desks, config.host, config.port) as server:
        for ending in (signal.SIGINT, signal.SIGTERM):  # a shell lets its background commands ignore Ctrl-C
            signal.signal(ending, signal.default_int_handler)
        try:
            document = _announce(config, server, work.pilot(config.audit.queries))
            server.serve_forever()
        except KeyboardInterrupt:
            ledger.close()
    if config.format == "text":
        _stopped(work, desks, bool(work.pilot(config.audit.queries)), invocation)
    return document


def _workbook(config: ReviewConfig, reviewers: Sequence[Reviewer]) -> dict[str, Any]:
    """Write a workbook for one reviewer, or read it."""
    if len(reviewers) > 1:
        raise BadInput("reviewer names several people, but a workbook is for one. Write one for each.")
    [one] = reviewers
    if config.from_:
        read_manifest(config.testset, "testset")  # holding the log would make its folder
        return review_workbook.read(config, one.name, lambda: _known(config))
    with stage("reading the test set"):
        work = _work(config)
        asked = work.new(one)
        _require(work, [asked.items])
        documents = _documents(config, work, [asked.items])
    place = str(documents_of(work.folder, config.documents).path / DOCUMENTS)
    questions = Questions(one.by, work.sample, asked.items, work.queries, documents, place)
    return review_workbook.write(config, asked, questions, work.pilot(config.audit.queries))


def _work(config: ReviewConfig) -> ReviewWork:
    """BadInput unless the test set is pooled. For an audit, queries are drawn."""
    folder, audit = config.testset, config.audit
    judged = read_judged_set(folder)
    drawn = config.sample == AUDIT and config.from_ is None
    sample = draw(folder, judged, audit.queries, audit.seed) if drawn else read_audit(folder)
    return ReviewWork(folder, config.sample, judged, sample)


def _known(config: ReviewConfig) -> tuple[JudgedSet, AuditSample | None]:
    """(the judged test set, the queries drawn for the audit)."""
    work = _work(config)
    return work.judged, work.audit


def _require(work: ReviewWork, asked: Iterable[Sequence[Item]]) -> None:
    """BadInput if nobody has anything to judge."""
    if any(asked):
        return
    why = {
        AUDIT: "people have judged all drawn queries. A larger audit.queries draws more; harness testset audit says "
        "what they tell of the model",
        OPEN: "people disagree about nothing, and there is nothing that nobody can tell: harness testset freeze says "
        "what else is open",
        "repair": "nothing looks wrong: no model has judged (harness testset judge), or people have looked at it",
        "all": "people have judged all that is pooled",
    }
    raise BadInput(f"testset={work.folder}, sample={work.sample}: {why[work.sample]}.")


def _documents(config: ReviewConfig, work: ReviewWork, asked: Iterable[Sequence[Item]]) -> dict[str, Document]:
    """The documents that are judged. BadInput if some are not in the documents folder."""
    wanted = {one.doc_id for items in asked for one in items if one.doc_id is not None}
    folder = documents_of(work.folder, config.documents)
    found = {one.document.doc_id: one.document for one in folder.chunks() if one.document.doc_id in wanted}
    if missing := sorted(wanted - found.keys()):
        raise BadInput(
            f"{folder.path} lacks {counted(len(missing), 'document')} to judge, such as {missing[0]:.60}. Give the "
            "folder that was pooled (documents=FOLDER), or repeat harness testset pool."
        )
    return found


def _given(work: ReviewWork, asked: Iterable[Sequence[Item]]) -> dict[Target, list[tuple[str, Value]]]:
    """What others have said of the items, for those who settle them."""
    judged = work.judged
    return {
        (*one.pair, one.round, one.sample): [
            (other.judge, value_of(other))
            for other in (*judged.first_round(one.pair), *judged.of_models.get(one.pair, ())[-1:])
        ]
        for items in asked
        for one in items
    }


def _announce(config: ReviewConfig, server: ReviewServer, pilot: str) -> dict[str, Any]:
    """Print the links. pilot: as of `ReviewWork`."""
    links = server.links
    document = {"testset": str(config.testset), "sample": config.sample, "links": links}

    def show(console: Console) -> None:
        if pilot:
            console.print(pilot)
        console.print("Each reviewer opens a link of their own. It holds until the server stops:")
        for name, link in links.items():
            console.print(f"  {name}: {link}")
        console.print("Every judgement is on the disk before the page says so. Press Ctrl-C to stop the server.")

    terminal.emit(config.format, document, show)
    sys.stdout.flush()
    return document


def _stopped(work: ReviewWork, desks: Sequence[Desk], drawn_later: bool, invocation: Invocation) -> None:
    """Say how far the reviewers have come, and what to do next. drawn_later: whether more queries will be drawn."""
    done = {desk.reviewer.name: desk.counts() for desk in desks}
    now = replace(work, judged=read_judged_set(work.folder))
    more = drawn_later or any(now.new(desk.reviewer).items for desk in desks)

    def show(console: Console) -> None:
        for name, (judged, total) in done.items():
            console.print(f"{name}: {judged:,} of {total:,} judged.")
        console.print("Next:")
        words = [*flag(invocation.config_dir), f"testset={work.folder}"]
        if more:
            names = f"[{','.join(done)}]" if len(done) > 1 else "".join(done)
            again = shlex.join(["harness", "testset", "review", *words, f"reviewer={names}", f"sample={work.sample}"])
            console.print(f"  {again}    # goes on")
        if any(judged for judged, _ in done.values()):
            after = ["audit", *words] if work.sample == AUDIT else ["freeze", *words, "leave_out=true"]
            console.print("  " + shlex.join(["harness", "testset", *after]))

    terminal.emit("text", {}, show)
