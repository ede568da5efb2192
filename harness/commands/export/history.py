"""`harness export record` and `export history`: scores of the leaderboard beside our own."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from harness.commands.export.ledger import (
    PARTS,
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
from harness.recording.recording import open_tracker
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Number, Rows, Table
from harness.storage.typed import encoded
from harness.tasks.answers import UNBOUNDED
from harness.tracking.tracker import measured

Row = Mapping[str, Any]

log = logging.getLogger(__name__)


def record(config: RecordConfig, invocation: Invocation) -> CommandAnswer:
    """Enter the leaderboard's scores for an exported file; a new score for the same part replaces the old one."""
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
    row = _row(submission, submission)
    document = {name: row[name] for name in ("number", "sha256", "run_id", *PARTS, "local", "local_kind", "drift")}
    document |= {"submission": str(file), "replaced": replaced}

    entered = [
        f"leaderboard, {part} part: {score:.4f}{_drift(row, part)}" for part, score in submission.answers.items()
    ]
    old = [f"The previous {part} score, {score:.4f}, is replaced." for part, score in replaced.items()]
    answer = Table(f"{submission.about.capitalize()}:", notes=entered)
    return CommandAnswer(document, Report("", tables=[answer], files=old))


def history(config: HistoryConfig, invocation: Invocation) -> CommandAnswer:
    """List all submissions: how far the leaderboard's scores are from ours, and whether their orders agree."""
    ledger = Ledger.of(config.outputs)
    known: Sequence[Submission] = ()
    if ledger.folder.is_dir():
        with ledger.locked():
            if any(ledger.pending.glob("*.json")):
                _settle(ledger, config)
            known = tuple(ledger.submissions().values())
    rows = [_row(one, known[-1]) for one in known]
    metric = known[-1].exports[0].metric if known else ""
    agreement, picture = {part: _agreement(rows, part) for part in PARTS}, None
    if max(one["submissions"] for one in agreement.values()) >= 2:
        _draw(rows, metric, picture := ledger.folder / "history.png")
    document = {"ledger": ledger.file, "metric": metric or None, "submissions": rows, "agreement": agreement}
    document |= {"picture": picture}
    return CommandAnswer(document, history_report(document), lambda _: [submissions_table(document)])


def submissions_table(document: Mapping[str, Any]) -> Table:
    """Return the submissions with our own score and the leaderboard's."""
    rows, metric = document["submissions"], document["metric"]
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
            row["number"],
            row["number"],
            minute(row["time"]),
            row["run_name"],
            short_id(row["run_id"]),
            row["local_kind"] or "",
            Number.of(row["local"], row["local_low"], row["local_high"]),
            row["local_public"],
            *(value for part in PARTS for value in (row[part], row["drift"][part])),
        ]
        for row in rows
    ]
    caption = f"{counted(len(rows), 'submission')}" + (f" by {metric}, 95 % intervals in brackets" if metric else "")
    notes = [
        "here: our own mean over all labelled queries; own public: over their public part; public, private: the "
        "leaderboard's scores; drift: its score − here."
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
    """Return leaderboard scores on our scale. Raise BadInput for one outside the range of the measure."""
    most, unit = (100, " in percent") if scale == "percent" else (1, "")
    for part, score in given.items():
        if metric in UNBOUNDED or 0 <= score <= most:
            continue
        if score < 0:
            raise BadInput(f"{part}={score:g} is below 0, the least value of {metric}.")
        hint = "."
        if 1 < score <= 100:
            hint = f": did you mean {score / 100:g}? If the leaderboard counts in percent, add scale=percent."
        raise BadInput(f"{part}={score:g} is above {most}, the greatest value of {metric}{unit}{hint}")
    return {part: score / most for part, score in given.items()}


def _refuse(file: Path, sha256: str, ledger: Ledger) -> NoReturn:
    """Raise BadInput that says why a file is not in the ledger: it was changed or moved, or never exported."""
    exported_as = json_file(provenance_of(file)).get("sha256") if provenance_of(file).is_file() else None
    for one in reversed(ledger.submissions().values()):
        if one.sha256 == exported_as or any(line.file == str(file) for line in one.exports):
            raise BadInput(
                f"submission={file} has changed since it was exported as {one.about}: its sha256 was "
                f"{one.sha256[:12]}… and is {sha256[:12]}…. Name the file that was submitted; "
                f"`harness export run={one.exports[0].run_id} submission=FILE` writes it again."
            )
    raise BadInput(
        f"submission={file} is not in {ledger.file}: it was not exported to this outputs folder. `harness export "
        "run=ID` enters a run's file, also one that an earlier version exported."
    )


def _row(submission: Submission, latest: Submission) -> dict[str, Any]:
    """Return a submission as `export history` shows it.

    local: our mean over all labelled queries by the measure of the latest submission; None if the run lacks it or used
    other queries. value: the score that ranked the run when it was exported.
    drift: part of the leaderboard -> its score minus `local`.
    """
    first, newest = submission.exports[0], latest.exports[0]
    numbers = first.metrics if first.queries == newest.queries else {}
    score, public = (measured(numbers, newest.metric, part) for part in ("all", "public"))
    local = score.value if score else None
    shown = encoded(score) or {}
    answers = {part: submission.answers.get(part) for part in PARTS}
    digests = {place: digest_file(place) for place in submission.files}
    file = next((place for place in submission.files if digests[place] == submission.sha256), submission.files[0])
    state = {submission.sha256: "unchanged", None: "missing"}.get(digests[file], "changed")
    return {
        "number": submission.number,
        **{name: getattr(first, name) for name in ("time", "sha256", "run_id", "run_name", "experiment", "trial_key")},
        "runs": list(submission.runs),
        "file": file,
        "state": state,
        **{name: getattr(first, name) for name in ("metric", "kind", "value")},
        "local": local,
        "local_kind": shown.get("kind"),
        "local_low": shown.get("low"),
        "local_high": shown.get("high"),
        "local_public": public and public.value,
        **answers,
        "drift": {p: None if score is None or local is None else score - local for p, score in answers.items()},
    }


def _agreement(rows: Sequence[Row], part: str) -> dict[str, Any]:
    """Return how well the leaderboard's scores on a part agree with ours, over the submissions that have both.

    tau: Kendall's tau-b of the two orders; None below three submissions, or if undefined.
    swapped: pairs [a, b] where a scores higher than b here and lower on the leaderboard.
    """
    both = [row for row in rows if row["drift"][part] is not None]
    drifts = [row["drift"][part] for row in both]
    pairs = [sorted(pair, key=lambda row: -row["local"]) for pair in itertools.combinations(both, 2)]
    swapped = [[a["number"], b["number"]] for a, b in pairs if a["local"] > b["local"] and a[part] < b[part]]
    tau = None
    if len({row["local"] for row in both}) > 1 and len({row[part] for row in both}) > 1 and len(both) >= 3:
        from scipy.stats import kendalltau

        tau = float(kendalltau([row["local"] for row in both], [row[part] for row in both]).statistic)
    drift = {"mean": sum(drifts) / len(drifts), "least": min(drifts), "greatest": max(drifts)} if drifts else None
    return {"submissions": len(both), "drift": drift, "tau": tau, "pairs": len(pairs), "swapped": swapped}


def history_report(document: Mapping[str, Any]) -> Report:
    rows: Sequence[Row] = document["submissions"]
    if not rows:
        return Report("No submissions yet.", steps=["harness export metric=modified_map@3"])
    verdict, steps = [], []
    if not any(row[part] is not None for row in rows for part in PARTS):
        verdict = ["No leaderboard scores yet. Record one: harness export record submission=FILE public=SCORE"]
    for part, agreement in document["agreement"].items():
        verdict += _in_words(rows, part, agreement)
        if agreement["swapped"]:
            pair = [short_id(row["run_id"]) for row in _first_swapped(rows, agreement)]
            steps.append(f"harness compare 'runs=[{','.join(pair)}]'  # do our queries tell these two apart?")
    whole = submissions_table(document)
    notes = [*whole.notes]
    if any(row["local_kind"] == "out of fold" for row in rows):
        notes.append("out of fold: gate or fusion learnt from these labels; each list was made without its own label.")
    if any(row["local"] is None for row in rows):
        notes.append("A dash under `here`: the run has no such score, or used other queries.")
    shown = whole.for_medium("screen").without_empty()
    headings = [replace(one, name=one.name.rpartition(" ")[2]) if "drift" in one.name else one for one in shown.columns]
    scores = replace(shown, caption="Scores", columns=headings, notes=notes)
    columns = [Column("no.", "count"), *map(Column, ("exported (UTC)", "run", "name", "state", "file"))]
    cells = [
        [row["number"], minute(row["time"]), short_id(row["run_id"]), row["run_name"], row["state"], row["file"]]
        for row in rows
    ]
    picture = [f"Picture: {document['picture']}"] if document["picture"] else []
    title = f"{counted(len(rows), 'submission')}" + (f" by {document['metric']}" if document["metric"] else "")
    return Report(
        title, verdict, [scores, Table("Files", columns, cells)], files=picture, steps=[*dict.fromkeys(steps)]
    )


def _first_swapped(rows: Sequence[Row], agreement: Mapping[str, Any]) -> list[Row]:
    return [next(row for row in rows if row["number"] == number) for number in agreement["swapped"][0]]


def _in_words(rows: Sequence[Row], part: str, agreement: Mapping[str, Any]) -> list[str]:
    if not agreement["submissions"]:
        return []
    drift = agreement["drift"]
    over = f"over {agreement['submissions']} submissions" if agreement["submissions"] > 1 else "in one submission"
    sentences = [
        f"Drift on the {part} leaderboard, {over}: mean {drift['mean']:+.4f}, "
        f"from {drift['least']:+.4f} to {drift['greatest']:+.4f}."
    ]
    if agreement["pairs"]:
        tau = "" if agreement["tau"] is None else f", Kendall's tau {agreement['tau']:.2f}"
        sentences.append(
            f"Order on the leaderboard: {len(agreement['swapped'])} of {agreement['pairs']} pairs "
            f"in the opposite order{tau}."
        )
    if agreement["swapped"]:
        a, b = _first_swapped(rows, agreement)
        sentences.append(
            f"Better here was not better there: submission {a['number']} is above {b['number']} here "
            f"({a['local']:.4f} > {b['local']:.4f}) and below it there ({a[part]:.4f} < {b[part]:.4f})."
        )
    return sentences


def _drift(row: Row, part: str) -> str:
    if (drift := row["drift"][part]) is None:
        return ""
    return f", here {row['local']:.4f} ({row['metric']}, {row['local_kind']}): drift {drift:+.4f}"


def _draw(rows: Sequence[Row], metric: str, file: Path) -> None:
    """Draw the leaderboard's scores (filled: public, hollow: private) over ours, with a line of no drift."""
    from harness.reports.figure import new_figure, save, shortened, with_fonts

    shown = [row for row in rows if any(drift is not None for drift in row["drift"].values())]
    figure = new_figure(6, 4.6 + 0.2 * len(shown))
    axes = figure.subplots()
    for row in shown:
        colour, here = f"C{(row['number'] - 1) % 10}", row["local"]
        low, high = (here if row[end] is None else row[end] for end in ("local_low", "local_high"))
        label = shortened(f"{row['number']}  {row['run_name']}", 70)
        for part in (part for part in PARTS if row["drift"][part] is not None):
            board = row[part]
            axes.plot([low, high], [board, board], color=colour, alpha=0.4, zorder=1)
            axes.plot(here, board, "o", color=colour, mfc=colour if part == "public" else "white", label=label)
            axes.annotate(str(row["number"]), (high, board), (5, -3), textcoords="offset points", color=colour)
            label = "_"  # once in the legend
    axes.axline((shown[0]["local"],) * 2, slope=1, color="#888", linewidth=0.8, zorder=0, label="no drift")
    axes.margins(0.1)
    axes.set(xlabel=f"{metric} here, with 95 % interval", ylabel="leaderboard (filled: public, hollow: private)")
    figure.legend(loc="outside lower center", fontsize=8, frameon=False)
    save(with_fonts(figure), file, quick=False)
