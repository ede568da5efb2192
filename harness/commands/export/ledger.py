"""The ledger of submissions: exported files, and the scores that the leaderboard gave them.

`<folder>/ledger.jsonl` is a chained log: edited, moved and removed lines are noticed. A submission is identified by the
sha256 of its file, so a moved file is recognised. A step (an export or new scores) waits in `<folder>/pending` until it
is written to the ledger, the provenance file and the tags of the run. After a crash, `settle` completes the steps.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NoReturn, cast

from harness.config.text import short_id
from harness.data.files import json_file
from harness.errors import BadInput
from harness.storage.append_log import AppendLog
from harness.storage.atomic import create_text, write_text
from harness.storage.typed import require_path, row_as
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import RunRecord, Tracker

log = logging.getLogger(__name__)
PARTS = ("public", "private")  # the parts of a leaderboard


@dataclass(frozen=True)
class Export:
    """The export of a file.

    metric, value, low, high, kind: the score by which the run was chosen. metrics: the run's values of this measure
    and of the run's objective. queries: fingerprint of the queries, or of a text task's references. time: see `now`.
    """

    time: str
    sha256: str
    file: str
    run_id: str
    run_name: str
    experiment: str
    metric: str
    trial_key: str | None = None
    queries: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    kind: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_path(self.file)


@dataclass(frozen=True)
class LeaderboardAnswer:
    """The leaderboard's scores for a file; None for a part without a score."""

    time: str
    sha256: str
    file: str
    public: float | None = None
    private: float | None = None

    def __post_init__(self) -> None:
        require_path(self.file)


@dataclass(frozen=True)
class LedgerLine:
    export: Export | None = None
    answer: LeaderboardAnswer | None = None

    def __post_init__(self) -> None:
        if (self.export is None) == (self.answer is None):
            raise ValueError("a line must be either an export or an answer. Put the file back as it was.")

    @property
    def step(self) -> Export | LeaderboardAnswer:
        return cast(Export | LeaderboardAnswer, self.export or self.answer)


@dataclass(frozen=True)
class Pending:
    """A step that was begun. provenance: content of the provenance file beside an export."""

    line: LedgerLine
    provenance: str | None = None


@dataclass(frozen=True)
class Submission:
    """Exported predictions, identified by their content.

    number: place in the order of the exports, from 1. files: paths that have had this content, the latest first.
    exports: the first export of the content, then the exports of copies and of other runs with equal predictions.
    answers: part of the leaderboard -> score.
    """

    number: int
    sha256: str
    exports: tuple[Export, ...] = ()
    answers: Mapping[str, float] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @property
    def runs(self) -> dict[str, Export]:
        """Return run id -> the latest export of this run."""
        return {one.run_id: one for one in self.exports}

    @property
    def about(self) -> str:
        first = self.exports[0]
        return f"submission {self.number} ({minute(first.time)}, run {short_id(first.run_id)}, {first.run_name})"


class Ledger:
    """The ledger in the folder `<outputs>/submissions`. All changes need `with ledger.locked():`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.pending = folder, folder / "ledger.jsonl", folder / "pending"
        remedy = (
            f"Put the ledger back as it was, or move {folder} away and enter the submissions again: "
            "`harness export run=ID`, then `harness export record`."
        )
        self._log = AppendLog(
            self.file, LedgerLine, sync="row", chained=True, lock=folder / "ledger.lock", remedy=remedy
        )
        self._add: Callable[..., None] = lambda line: None

    @classmethod
    def of(cls, outputs: Path) -> Ledger:
        return cls(outputs.absolute() / "submissions")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the ledger. Raise BadInput if a line was edited, moved or removed."""
        self.pending.mkdir(parents=True, exist_ok=True)
        with self._log.appending() as self._add:
            yield

    def submissions(self) -> dict[str, Submission]:
        """Return sha256 -> submission, in the order of the exports. Raise BadInput for an invalid line."""
        found: dict[str, Submission] = {}
        for line in self._log.read():
            sha256, file = line.step.sha256, line.step.file
            one = found.get(sha256) or Submission(len(found) + 1, sha256)
            files = (file, *(other for other in one.files if other != file))
            if line.export:
                found[sha256] = replace(one, exports=(*one.exports, line.export), files=files)
            elif sha256 in found:
                answers = {part: score for part in PARTS if (score := getattr(line.answer, part)) is not None}
                found[sha256] = replace(one, answers={**one.answers, **answers}, files=files)
            else:
                raise BadInput(f"{self.file} has scores for the file {sha256:.12}…, but no line of its export.")
        return found

    def require_free(self, line: Export) -> None:
        """Raise BadInput if the name of an export, or that of its provenance file, is taken by other content."""
        file = Path(line.file)
        for one in self.submissions().values():
            if line.file in one.files and one.sha256 != line.sha256:
                _refuse(line, f"is the file of {one.about}")
        if os.path.lexists(file) and digest_file(file) != line.sha256:
            _refuse(line, "exists and has other content")
        if os.path.lexists(beside := provenance_of(file)):
            about = None
            with suppress(BadInput):  # refuse an unreadable file like one of another export
                about = json_file(beside).get("sha256")
            if about != line.sha256:
                _refuse(line, f"has a provenance file that describes another file: {beside.name}")

    def export(self, line: Export, text: str, provenance: str) -> None:
        """Begin an export and write its file; `settle` completes it. Raise BadInput if the name was taken meanwhile."""
        begun = self._begin(Pending(LedgerLine(export=line), provenance))
        if not create_text(Path(line.file), text) and digest_file(line.file) != line.sha256:
            begun.unlink()
            _refuse(line, "now exists and has other content")

    def answer(self, line: LeaderboardAnswer) -> None:
        """Begin to enter the leaderboard's scores in the ledger; `settle` completes the step."""
        self._begin(Pending(LedgerLine(answer=line)))

    def settle(self, tracker: Tracker) -> None:
        """Complete the pending steps: write provenance files, lines of the ledger, and tags and metrics of the runs.

        Drop an export whose file was never written. If the tracking server is down, the next command retries the step.
        """
        for path in sorted(self.pending.glob("*.json")):
            begun = row_as(Pending, json_file(path), str(path))
            step, entered = begun.line.step, self._has(begun.line)
            valid = digest_file(step.file) == step.sha256 if begun.line.export else step.sha256 in self.submissions()
            if not (valid or entered):
                log.warning("Dropped an interrupted %s: %s", type(step).__name__.lower(), step.file or step.sha256)
                path.unlink()
                continue
            if begun.provenance is not None and valid:
                create_text(provenance_of(Path(step.file)), begun.provenance)  # does not replace an existing file
            if not entered:
                self._add(begun.line)
            submission = self.submissions()[step.sha256]
            if all(_update_run(tracker, submission, run_id) for run_id in submission.runs):
                path.unlink()

    def _begin(self, step: Pending) -> Path:
        path = self.pending / f"{step.line.step.time.replace(':', '')}.json"
        write_text(path, json.dumps(asdict(step), ensure_ascii=False, allow_nan=False) + "\n")
        return path

    def _has(self, line: LedgerLine) -> bool:
        if (new := line.export) is None:
            return line in self._log.read()
        known = (old.export for old in self._log.read() if old.export)
        return any((old.sha256, old.run_id, old.file) == (new.sha256, new.run_id, new.file) for old in known)


def _refuse(line: Export, why: str) -> NoReturn:
    file = Path(line.file)
    raise BadInput(
        f"submission={file} {why}. An exported file is never overwritten: choose another name, such as "
        f"submission={file.stem}-{short_id(line.run_id)}{file.suffix}, or leave `submission` out."
    )


def _update_run(tracker: Tracker, submission: Submission, run_id: str) -> bool:
    """Copy the ledger's entries into a run's tags and metrics. Return False if the server is down."""
    line = submission.runs[run_id]
    tags = {f"submission.{name}": str(getattr(line, name)) for name in ("sha256", "file", "time")}
    scores = {f"leaderboard/{part}": score for part, score in submission.answers.items()}
    try:
        run = tracker.run(run_id)
        record = RunRecord(
            run.experiment,
            run.name,
            end_tags={name: value for name, value in tags.items() if run.tags.get(name) != value},
            metrics={name: score for name, score in scores.items() if run.metrics.get(name) != score},
        )
        if record.end_tags or record.metrics:
            tracker.log(run_id, record)
    except Unreachable as error:
        log.warning("MLflow is unreachable: the next command will update the run of %s: %s", submission.about, error)
        return False
    except Exception as error:  # for example, MLflow says that the run is missing or deleted
        log.warning("The ledger has %s, but its run could not be updated: %s", submission.about, error)
    return True


def now() -> str:
    """Return the time in UTC as ISO 8601, with microseconds, so that two steps of a ledger have different times."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def minute(time: str) -> str:
    """Return a time of the ledger in the form `2026-07-01 12:30`."""
    return time[:16].replace("T", " ")


def digest_file(path: str | Path) -> str | None:
    """Return the sha256 of a file; None if there is no such file."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except PermissionError:
        raise
    except (OSError, ValueError):  # ValueError: no file can have this name
        return None


def provenance_of(submission: Path) -> Path:
    return submission.with_name(submission.name + ".provenance.json")
