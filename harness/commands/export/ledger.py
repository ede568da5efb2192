"""The ledger of submissions: what was exported, and what the leaderboard answered.

`<folder>/ledger.jsonl` holds one JSON object a line and only grows. A submission is the sha256 of its file, so that a
file is known wherever it was moved to. A step is written to `<folder>/pending` before it is taken and removed when the
ledger, the file's provenance and the run's tags have it: `settle` finishes what a crash left, and does no step twice.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.data.files import json_lines, write_text
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import RunRecord, Tracker
from retrievers.base import BadInput

log = logging.getLogger(__name__)
Line = Mapping[str, Any]
PARTS = ("public", "private")  # of a leaderboard


@dataclass(frozen=True)
class Submission:
    """One content that was exported.

    number: from 1, in the order of the exports. exports: its lines, the first of which made it a submission; others
    are copies under other names, and other runs that predict the same. answers: part of the leaderboard -> score.
    files: where it was, the latest first.
    """

    number: int
    sha256: str
    exports: tuple[Line, ...] = ()
    answers: Mapping[str, float] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @property
    def runs(self) -> dict[str, Line]:
        """run id -> its latest export."""
        return {line["run_id"]: line for line in self.exports}

    @property
    def about(self) -> str:
        """What it is called in messages."""
        first = self.exports[0]
        return f"submission {self.number} ({minute(first['time'])}, run {first['run_id']}, {first['run_name']})"


class Ledger:
    """folder: `<outputs>/submissions`. All but reading happens inside `with ledger.locked():`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.pending = folder, folder / "ledger.jsonl", folder / "pending"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out, and cut off what a killed one left of a line."""
        from filelock import FileLock

        self.pending.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "ledger.lock"):
            self._mend()
            yield

    def submissions(self) -> dict[str, Submission]:
        """sha256 -> submission, in the order of the exports; BadInput, with file and line, for another line."""
        found: dict[str, Submission] = {}
        for number, line in json_lines(self.file) if self.file.exists() else ():
            sha256, event, file = (str(line.get(name)) for name in ("sha256", "event", "file"))
            one = found.get(sha256) or Submission(len(found) + 1, sha256)
            files = (file, *(other for other in one.files if other != file))
            if event == "export":
                found[sha256] = replace(one, exports=(*one.exports, line), files=files)
            elif event == "answer" and sha256 in found:
                answers = {part: line[part] for part in PARTS if part in line}
                found[sha256] = replace(one, answers={**one.answers, **answers}, files=files)
            else:
                raise BadInput(f"{self.file}:{number}: neither an export nor an answer to one. Put the line right.")
        return found

    def begin(self, line: Line, provenance: str | None = None) -> None:
        """Note a step that is about to be taken. provenance: of an export, which `settle` puts beside the file."""
        step = json.dumps({"line": line, "provenance": provenance}, ensure_ascii=False, allow_nan=False)
        write_text(self.pending / f"{line['time'].replace(':', '')}.json", step + "\n")

    def settle(self, tracker: Tracker) -> None:
        """Finish the steps that were begun: provenance, ledger, tags of the runs.

        An export whose file was not written is forgotten. A run that is gone is warned of; where the tracking store
        does not answer, the step stays for the next command.
        """
        for path in sorted(self.pending.glob("*.json")):
            step = json.loads(path.read_text("utf-8"))
            line = step["line"]
            export, known = line["event"] == "export", self._knows(line)
            stands = digest_file(line["file"]) == line["sha256"] if export else line["sha256"] in self.submissions()
            if not (stands or known):
                log.warning("An interrupted %s is forgotten: %s", line["event"], line.get("file") or line["sha256"])
                path.unlink()
                continue
            if export and stands:
                write_text(provenance_of(Path(line["file"])), step["provenance"])
            if not known:
                self._append(line)
            submission = self.submissions()[line["sha256"]]
            if all(_tell(tracker, submission, run_id) for run_id in submission.runs):
                path.unlink()

    def _knows(self, line: Line) -> bool:
        """Whether the ledger has the line; the same file of the same run is exported once."""
        if not self.file.exists():
            return False
        names = ("event", "sha256", "run_id", "file") if line["event"] == "export" else tuple(line)
        said = [line[name] for name in names]
        return any([other.get(name) for name in names] == said for _, other in json_lines(self.file))

    def _append(self, line: Line) -> None:
        with self.file.open("ab") as file:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _mend(self) -> None:
        """End the last line, or cut it off where it was torn: the step that wrote it is still pending."""
        content = self.file.read_bytes() if self.file.exists() else b""
        torn = content[content.rfind(b"\n") + 1 :]
        if not torn:
            return
        try:
            json.loads(torn)
        except ValueError:
            log.warning("%s ended in a torn line, which is cut off: %.80s", self.file, torn.decode(errors="replace"))
            os.truncate(self.file, len(content) - len(torn))
            return
        with self.file.open("ab") as file:  # whole, but for its end: written by hand
            file.write(b"\n")


def _tell(tracker: Tracker, submission: Submission, run_id: str) -> bool:
    """Bring a run's tags and metrics to what the ledger says; False where that has to be tried again."""
    line = submission.runs[run_id]
    tags = {f"submission.{name}": str(line[name]) for name in ("sha256", "file", "time")}
    scores = {f"leaderboard/{part}": score for part, score in submission.answers.items()}
    try:
        run = tracker.best(line["experiment"], line["metric"], run_id)
        record = RunRecord(
            run.experiment,
            run.name,
            end_tags={name: value for name, value in tags.items() if run.tags.get(name) != value},
            metrics={name: score for name, score in scores.items() if run.metrics.get(name) != score},
        )
        if record.end_tags or record.metrics:
            tracker.log(run_id, record)
    except Unreachable as error:
        log.warning("The run of %s will be told by the next command: %s", submission.about, error)
        return False
    except Exception as error:  # MLflow's own among them: the store answers that there is no such run to write to
        log.warning("The ledger has %s, but its run cannot be told: %s", submission.about, error)
    return True


def now() -> str:
    """UTC, ISO 8601, with microseconds: no two steps of a ledger have the same."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def minute(time: str) -> str:
    """`2026-07-01 12:30` of a ledger's time."""
    return time[:16].replace("T", " ")


def digest_file(path: str | Path) -> str | None:
    """sha256 of a file, None where there is none."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def provenance_of(submission: Path) -> Path:
    return submission.with_name(submission.name + ".provenance.json")
