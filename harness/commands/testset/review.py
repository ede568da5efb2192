"""`harness testset review`: people judge what was pooled, and every judgement goes into `judgements.jsonl`.

`harness testset review via=xlsx`: what there is to judge as an Excel workbook, and back.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.check import Invocation
from harness.config.commands import ReviewConfig
from harness.config.text import counted
from harness.data.documents_folder import DOCUMENTS
from harness.data.testset import read_testset_manifest
from harness.errors import BadInput
from harness.progress import stage
from harness.reports import terminal
from harness.reports.next_steps import flag
from harness.testset.audit.sample import AuditSample, draw, read_audit
from harness.testset.judge.judgements import JUDGEMENTS, JudgedSet, JudgementLog, read_judged_set
from harness.testset.pool.pool import pooled_documents
from harness.testset.review.desk import (
    Desk,
    Reviewer,
    ReviewLedger,
    ReviewMaterial,
    Target,
    Value,
    reviewers_of,
    value_of,
)
from harness.testset.review.items import AskedItems, Item, items
from harness.testset.review.server import ReviewServer
from harness.testset.review.workbook import Questions, write_workbook
from harness.testset.review.workbook_reader import Filled, read_workbook
from retrievers.base import Document, Query

if TYPE_CHECKING:
    from rich.console import Console

WORKBOOK = "xlsx"  # the value of `via`


def check_keys(config: ReviewConfig) -> None:
    """BadInput for keys of the workbook that do not fit together, or without via=xlsx."""
    output, source = config.output, config.from_
    if config.via != WORKBOOK:
        if output or source:
            name = "output" if output else "from"
            raise BadInput(f"{name}={output or source}, but via={config.via}: only via={WORKBOOK} has a file.")
        return
    if bool(output) == bool(source):
        what = "both are given" if output else "neither is given"
        raise BadInput(f"via={WORKBOOK} needs output=FILE to write a workbook, or from=FILE to read one: {what}.")


def take_workbook(
    config: ReviewConfig, reviewer: str, known: Callable[[], tuple[JudgedSet, AuditSample | None]]
) -> dict[str, Any]:
    """Append what a workbook says to the judgements, all of it or, if anything in it is wrong, nothing.

    known: reads what has been judged. It is called while no other process can add to it.
    """
    path, folder = Path(config.from_ or ""), config.testset
    log = JudgementLog(folder)
    with stage(f"reading {path}"), log.appending() as add:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = read_workbook(path, reviewer, *known(), now)
        add(*found.new)
    document = {
        "testset": str(folder),
        "from": str(path),
        "reviewer": reviewer,
        "new": len(found.new),
        **{name: getattr(found, name) for name in ("changed", "same", "empty", "kept")},
    }
    terminal.emit(config.format, document, lambda console: _show_read(console, config, reviewer, found))
    return document


def _show_read(console: Console, config: ReviewConfig, reviewer: str, found: Filled) -> None:
    path = config.testset / JUDGEMENTS
    changed = f", {found.changed:,} of which replace an earlier one of {reviewer}" if found.changed else ""
    console.print(f"{config.from_}: {counted(len(found.new), 'judgement')} added to {path}{changed}.")
    if found.same:
        console.print(f"{found.same:,} were there already.")
    if found.empty:
        kept = f"; of these, {reviewer} has judged {found.kept:,} before, which stays" if found.kept else ""
        console.print(f"{counted(found.empty, 'row')} without an answer{kept}.")
    console.print("Next: what is left to judge, if anything is, or how far people and model agree:")
    words = ("via=xlsx", f"reviewer={reviewer}", "output=FILE.xlsx")
    console.print("  " + _command("review", config, *words))
    console.print("  " + _command("audit", config))


def write_review_workbook(config: ReviewConfig, asked: AskedItems, questions: Questions, pilot: str) -> dict[str, Any]:
    """Write the workbook. questions: what it asks; the same items as `asked`. pilot: a sentence on what is drawn later,
    or nothing."""
    path = Path(config.output or "")
    with stage(f"writing {path}"):
        write_workbook(path, questions)
    needs = sum(one.doc_id is None for one in asked.items)
    name = questions.by.partition(":")[2]
    document: dict[str, Any] = {
        "testset": str(config.testset),
        "output": str(path),
        "reviewer": name,
        "sample": config.sample,
        "queries": len({one.query_id for one in asked.items}),
        "needs": needs,
        "pairs": len(asked.items) - needs,
        "reasons": dict(asked.reasons),
    }

    def show(console: Console) -> None:
        reasons = "; ".join(f"{why}: {count:,}" for why, count in asked.reasons.items())
        console.print(
            f"{path}: {counted(document['queries'], 'query')}, with {counted(needs, 'question')} on the need for "
            f"retrieval and {counted(document['pairs'], 'document')} to grade ({reasons})."
        )
        if pilot:
            console.print(pilot)
        console.print("Nothing in it tells who retrieved a document or what others said of it.")
        console.print(f"Next, when {name} has filled it in:")
        words = ("via=xlsx", f"reviewer={name}", f"from={path}")
        console.print("  " + _command("review", config, *words))

    terminal.emit(config.format, document, show)
    return document


def _command(verb: str, config: ReviewConfig, *words: str) -> str:
    return shlex.join(["harness", "testset", verb, f"testset={config.testset}", *words])


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
    check_keys(config)
    reviewers = reviewers_of(config.reviewer, adjudicates=config.sample == OPEN)
    if config.via == WORKBOOK:
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
        read_testset_manifest(config.testset, "testset")  # holding the log would make its folder
        return take_workbook(config, one.name, lambda: _known(config))
    with stage("reading the test set"):
        work = _work(config)
        asked = work.new(one)
        _require(work, [asked.items])
        documents = _documents(config, work, [asked.items])
    place = str(pooled_documents(work.folder, config.documents).path / DOCUMENTS)
    questions = Questions(one.by, work.sample, asked.items, work.queries, documents, place)
    return write_review_workbook(config, asked, questions, work.pilot(config.audit.queries))


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
    folder = pooled_documents(work.folder, config.documents)
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
