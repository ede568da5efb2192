"""`harness export record` and `export history`: enter the leaderboard's scores, and show them beside our own."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, NoReturn

from harness.commands.export.ledger import (
    PARTS,
    Export,
    LeaderboardAnswer,
    Ledger,
    Submission,
    digest_file,
    minute,
    now,
    provenance_of,
)
from harness.config.check import Invocation
from harness.config.commands import HistoryConfig, RecordConfig
from harness.config.text import counted, short_id
from harness.data.files import json_file
from harness.errors import BadInput
from harness.measures.objective import Objective
from harness.recording.recording import open_tracker
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Number, Rows, Table
from harness.storage.typed import INLINE, encoded
from harness.tasks.answers import UNBOUNDED
from harness.tracking.tracker import measured

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HistoryRow:
    """A submission with our scores and the leaderboard's. Unknown scores are NaN.

    first: the first export of the submission, with the score that the run had then.
    local: our mean over all labelled queries, by the measure of the latest submission. NaN if the run lacks this
        measure, or used other queries than the latest submission. local_public: the same over the public queries.
    answers: part of the leaderboard -> its score.
    """

    number: int
    first: Export = field(metadata=INLINE)
    runs: Sequence[str]
    file: str
    state: str
    local: float
    local_low: float
    local_high: float
    local_kind: str | None
    local_public: float
    answers: Mapping[str, float] = field(metadata=INLINE)
    json_too: ClassVar = ("drift",)

    @classmethod
    def of(cls, one: Submission, latest: Submission) -> HistoryRow:
        first, newest = one.exports[0], latest.exports[0]
        numbers = first.metrics if first.queries == newest.queries else {}
        score, public = (measured(numbers, newest.metric, part) for part in ("all", "public"))
        digests = {place: digest_file(place) for place in one.files}
        file = next((place for place in one.files if digests[place] == one.sha256), one.files[0])
        state = {one.sha256: "unchanged", None: "missing"}.get(digests[file], "changed")
        unknown = Objective(newest.metric, math.nan)
        ours, kind = score or unknown, score.kind if score else None
        answers = {part: one.answers.get(part, math.nan) for part in PARTS}
        local = (ours.value, ours.low, ours.high, kind, (public or unknown).value)
        return cls(one.number, first, [*one.runs], file, state, *local, answers)

    @property
    def drift(self) -> dict[str, float]:
        """Return for each part of the leaderboard: the score on this part minus our score."""
        return {part: score - self.local for part, score in self.answers.items()}


@dataclass(frozen=True)
class Agreement:
    """How well the leaderboard's scores on a part agree with ours, over the submissions that have both scores.

    drift: mean, least and greatest difference (the leaderboard's score minus ours); None without submissions.
    tau: Kendall's tau-b of the scores; None for fewer than three submissions, or if one side's scores are all equal.
    swapped: pairs of submissions (a, b) where `a` scores higher than `b` here, but lower on the leaderboard.
    """

    submissions: int
    drift: Mapping[str, float] | None
    tau: float | None
    pairs: int
    swapped: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, rows: Sequence[HistoryRow], part: str) -> Agreement:
        both = [row for row in rows if not math.isnan(row.drift[part])]
        drifts = [row.drift[part] for row in both]
        ours, theirs = [row.local for row in both], [row.answers[part] for row in both]
        pairs = [sorted(pair, key=lambda row: -row.local) for pair in itertools.combinations(both, 2)]
        swapped = [(a.number, b.number) for a, b in pairs if a.local > b.local and a.answers[part] < b.answers[part]]
        tau = None
        if len({*ours}) > 1 and len({*theirs}) > 1 and len(both) >= 3:
            from scipy.stats import kendalltau

            tau = float(kendalltau(ours, theirs).statistic)
        drift = {"mean": sum(drifts) / len(drifts), "least": min(drifts), "greatest": max(drifts)} if drifts else None
        return cls(len(both), drift, tau, len(pairs), swapped)


@dataclass(frozen=True)
class History:
    """All submissions. agreement: part of the leaderboard -> agreement. picture: None if there is nothing to draw."""

    ledger: Path
    metric: str | None
    submissions: Sequence[HistoryRow]
    agreement: Mapping[str, Agreement]
    picture: Path | None = None

    @property
    def title(self) -> str:
        return counted(len(self.submissions), "submission") + (f" by {self.metric}" if self.metric else "")


def record(config: RecordConfig, invocation: Invocation) -> CommandAnswer:
    """Enter the leaderboard's scores for an exported file. A new score for a part replaces the old score."""
    given = {part: float(score) for part in PARTS if (score := config.document[part]) is not None}
    if not given:
        raise BadInput("Nothing to record. Give the leaderboard's scores: public=0.81, private=0.80 or both.")
    file, ledger = Path(config.submission).absolute(), Ledger.of(config.outputs)
    if (sha256 := digest_file(file)) is None:
        raise BadInput(f"submission={config.submission}: there is no such file. Name the file that was submitted.")
    tracker = open_tracker(config)
    with ledger.locked():
        ledger.settle(tracker)
        known = ledger.submissions()
        if sha256 not in known:
            _refuse(file, sha256, ledger)
        scores = _fractions(given, config.scale, known[sha256].exports[0].metric)
        before = known[sha256].answers
        replaced = {part: before[part] for part, score in scores.items() if before.get(part, score) != score}
        if any(before.get(part) != score for part, score in scores.items()):
            ledger.answer(LeaderboardAnswer(now(), sha256, str(file), **scores))
            ledger.settle(tracker)
        submission = ledger.submissions()[sha256]
    row = HistoryRow.of(submission, submission)
    names = ("number", "sha256", "run_id", *PARTS, "local", "local_kind", "drift")
    document = {name: value for name, value in encoded(row).items() if name in names}
    document |= {"submission": file, "replaced": replaced}

    entered = [
        f"leaderboard, {part} part: {score:.4f}{_drift(row, part)}" for part, score in submission.answers.items()
    ]
    old = [f"The previous {part} score, {score:.4f}, is replaced." for part, score in replaced.items()]
    answer = Table(f"{submission.about.capitalize()}:", notes=entered)
    return CommandAnswer(document, Report("", tables=[answer], files=old))


def history(config: HistoryConfig, invocation: Invocation) -> CommandAnswer:
    """List all submissions. Report how the leaderboard's scores differ from ours and which submissions swap places."""
    ledger = Ledger.of(config.outputs)
    known: Sequence[Submission] = ()
    if ledger.folder.is_dir():
        with ledger.locked():
            if any(ledger.pending.glob("*.json")):
                _settle(ledger, config)
            known = tuple(ledger.submissions().values())
    rows = [HistoryRow.of(one, known[-1]) for one in known]
    found = History(
        ledger.file,
        known[-1].exports[0].metric if known else None,
        rows,
        {part: Agreement.of(rows, part) for part in PARTS},
    )
    if max(one.submissions for one in found.agreement.values()) >= 2:
        found = replace(found, picture=ledger.folder / "history.png")
        _draw(found)
    return CommandAnswer(found, history_report(found), lambda _: [submissions_table(found)])


def submissions_table(found: History) -> Table:
    """Return a table of the submissions with our own scores and the leaderboard's scores."""
    columns = [
        Column("submission", "count", on="paste"),
        Column("no.", "count", on="screen"),
        Column("exported (UTC)", on="paste"),
        Column("run", on="paste"),
        Column("run_id", on="paste"),
        Column("kind"),
        Column("here", "value"),
        Column("own public", "value"),
        Column("public", "value"),
        Column("public drift", "difference"),
        Column("private", "value"),
        Column("private drift", "difference"),
    ]
    cells: Rows = [
        [
            row.number,
            row.number,
            minute(row.first.time),
            row.first.run_name,
            short_id(row.first.run_id),
            row.local_kind or "",
            Number(row.local, row.local_low, row.local_high),
            row.local_public,
            *(value for part in PARTS for value in (row.answers[part], row.drift[part])),
        ]
        for row in found.submissions
    ]
    caption = found.title + (", 95 % intervals in brackets" if found.metric else "")
    notes = [
        "here: our own mean over all labelled queries; own public: our own mean over the public queries; public and "
        "private: the leaderboard's scores; drift: the leaderboard's score − here."
    ]
    return Table(caption, columns, cells, notes, "submissions")


def _settle(ledger: Ledger, config: HistoryConfig) -> None:
    try:
        tracker = open_tracker(config)
    except BadInput as error:
        log.warning("An interrupted step stays pending until the tracking server answers: %s", error)
        return
    ledger.settle(tracker)


def _fractions(given: Mapping[str, float], scale: str, metric: str) -> dict[str, float]:
    """Return the leaderboard's scores as fractions of 1. Raise BadInput for a score outside the measure's range."""
    most, unit = (100, " in percent") if scale == "percent" else (1, "")
    for part, score in given.items():
        if metric in UNBOUNDED or 0 <= score <= most:
            continue
        if score < 0:
            raise BadInput(f"{part}={score:g} is below 0, the least value of {metric}.")
        hint = "."
        if 1 < score <= 100:
            hint = f": did you mean {score / 100:g}? If the leaderboard shows percentages, add scale=percent."
        raise BadInput(f"{part}={score:g} is above {most}, the greatest value of {metric}{unit}{hint}")
    return {part: score / most for part, score in given.items()}


def _refuse(file: Path, sha256: str, ledger: Ledger) -> NoReturn:
    """Raise BadInput. The message says why the file is not in the ledger: it was changed, or never exported."""
    exported_as = json_file(provenance_of(file)).get("sha256") if provenance_of(file).is_file() else None
    for one in reversed(ledger.submissions().values()):
        if one.sha256 == exported_as or any(line.file == str(file) for line in one.exports):
            raise BadInput(
                f"submission={file} has changed since it was exported as {one.about}: its sha256 was "
                f"{one.sha256[:12]}… and is now {sha256[:12]}…. Name the file that was submitted; "
                f"`harness export run={one.exports[0].run_id} submission=FILE` writes it again."
            )
    raise BadInput(
        f"submission={file} is not in {ledger.file}: it was not exported to this outputs folder. "
        "`harness export run=ID` enters the file of a run, even if an earlier version of the harness wrote it."
    )


def history_report(found: History) -> Report:
    rows = found.submissions
    if not rows:
        return Report("No submissions yet.", steps=["harness export metric=modified_map@3"])
    verdict, steps = [], []
    if all(math.isnan(score) for row in rows for score in row.answers.values()):
        verdict = ["No leaderboard scores yet. Record one: harness export record submission=FILE public=SCORE"]
    for part, agreement in found.agreement.items():
        verdict += _in_words(found, part)
        if agreement.swapped:
            pair = [short_id(row.first.run_id) for row in _first_swapped(found, part)]
            steps.append(f"harness compare 'runs=[{','.join(pair)}]'  # do our queries tell these two apart?")
    whole = submissions_table(found)
    notes = [*whole.notes]
    if any(row.local_kind == "out of fold" for row in rows):
        notes.append("out of fold: for each query, a gate or fusion learned from the labels of other queries.")
    if any(math.isnan(row.local) for row in rows):
        notes.append("A dash under `here`: the run lacks this measure, or used other queries.")
    shown = whole.for_medium("screen").without_empty()
    headings = [replace(one, name=one.name.rpartition(" ")[2]) if "drift" in one.name else one for one in shown.columns]
    scores = replace(shown, caption="Scores", columns=headings, notes=notes)
    columns = [Column("no.", "count"), *map(Column, ("exported (UTC)", "run", "name", "state", "file"))]
    cells: Rows = [
        [row.number, minute(one.time), short_id(one.run_id), one.run_name, row.state, row.file]
        for row in rows
        for one in [row.first]
    ]
    picture = [f"Picture: {found.picture}"] if found.picture else []
    tables = [scores, Table("Files", columns, cells)]
    return Report(found.title, verdict, tables, files=picture, steps=[*dict.fromkeys(steps)])


def _first_swapped(found: History, part: str) -> list[HistoryRow]:
    by_number = {row.number: row for row in found.submissions}
    return [by_number[number] for number in found.agreement[part].swapped[0]]


def _in_words(found: History, part: str) -> list[str]:
    agreement = found.agreement[part]
    if (drift := agreement.drift) is None:
        return []
    over = f"over {agreement.submissions} submissions" if agreement.submissions > 1 else "in one submission"
    sentences = [
        f"Drift on the {part} leaderboard, {over}: mean {drift['mean']:+.4f}, "
        f"from {drift['least']:+.4f} to {drift['greatest']:+.4f}."
    ]
    if agreement.pairs:
        tau = "" if agreement.tau is None else f", Kendall's tau {agreement.tau:.2f}"
        sentences.append(
            f"The leaderboard ranks {len(agreement.swapped)} of {agreement.pairs} pairs in the opposite order{tau}."
        )
    if agreement.swapped:
        a, b = _first_swapped(found, part)
        sentences.append(
            f"The leaderboard disagrees: submission {a.number} is above {b.number} here "
            f"({a.local:.4f} > {b.local:.4f}) and below it there ({a.answers[part]:.4f} < {b.answers[part]:.4f})."
        )
    return sentences


def _drift(row: HistoryRow, part: str) -> str:
    if math.isnan(drift := row.drift[part]):
        return ""
    return f", here {row.local:.4f} ({row.first.metric}, {row.local_kind}): drift {drift:+.4f}"


def _draw(found: History) -> None:
    """Plot the leaderboard's scores (public: filled, private: hollow) against ours, and a line where both are equal."""
    from harness.reports.figure import new_figure, save, shortened, with_fonts

    assert found.picture
    shown = [row for row in found.submissions if not all(map(math.isnan, row.drift.values()))]
    figure = new_figure(6, 4.6 + 0.2 * len(shown))
    axes = figure.subplots()
    for row in shown:
        colour, here = f"C{(row.number - 1) % 10}", row.local
        low, high = (here if math.isnan(end) else end for end in (row.local_low, row.local_high))
        label = shortened(f"{row.number}  {row.first.run_name}", 70)
        for part, board in row.answers.items():
            if math.isnan(row.drift[part]):
                continue
            axes.plot([low, high], [board, board], color=colour, alpha=0.4, zorder=1)
            axes.plot(here, board, "o", color=colour, mfc=colour if part == "public" else "white", label=label)
            axes.annotate(str(row.number), (high, board), (5, -3), textcoords="offset points", color=colour)
            label = "_"  # the legend names each run only once
    axes.axline((shown[0].local,) * 2, slope=1, color="#888", linewidth=0.8, zorder=0, label="no drift")
    axes.margins(0.1)
    axes.set(xlabel=f"{found.metric} here, with 95 % interval", ylabel="leaderboard (filled: public, hollow: private)")
    figure.legend(loc="outside lower center", fontsize=8, frameon=False)
    save(with_fonts(figure), found.picture, quick=False)
