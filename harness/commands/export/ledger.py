"""The ledger of submissions: what was exported, and which scores the leaderboard gave.

`<folder>/ledger.jsonl` has one JSON object per line, and lines are only added. Each has the sha256 of the line before
it, and `<folder>/ledger.last` that of the last one, so that a line that was edited, moved or removed is noticed. A
submission is identified by the sha256 of its file, so that a moved file is still recognised; an exported file is never
overwritten. Each step is first written to `<folder>/pending`, and removed from there when the ledger, the file's
provenance and the run's tags have it. After a crash `settle` completes pending steps; no step is done twice.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from harness.config.text import short_id
from harness.data.files import create_text, json_file, json_rows, numbered_lines, required, text_file, write_text
from harness.data.files import field as entry
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import RunRecord, Tracker
from retrievers.base import BadInput

log = logging.getLogger(__name__)
Line = Mapping[str, Any]
DAMAGED = "Put the file back as it was."
BEFORE = "before"  # field of a line: the sha256 of the line before it
LONGEST_HASH = 1000  # bytes of the file that holds the last one
PARTS = ("public", "private")  # of a leaderboard
_TEXT, _MAYBE = (str, "text"), ((str, type(None)), "text or null")
_STEP = dict.fromkeys(("time", "sha256", "file"), _TEXT)
EVENTS: Mapping[str, Mapping[str, tuple[Any, str]]] = {  # event -> field of its lines -> (type, its name in messages)
    "export": _STEP
    | dict.fromkeys(("run_id", "run_name", "experiment", "metric"), _TEXT)
    | dict.fromkeys(("trial_key", "queries"), _MAYBE)
    | {"value": ((int, float, type(None)), "a number or null"), "metrics": (dict, "an object of numbers")},
    "answer": _STEP,
}


@dataclass(frozen=True)
class Submission:
    """Exported predictions, identified by their content.

    number: from 1, in the order of the exports.
    exports: their lines in the ledger; the first made the submission. Further ones are copies under other names, or
        other runs with the same predictions.
    answers: part of the leaderboard -> score.
    files: paths where the content was written, the latest first.
    """

    number: int
    sha256: str
    exports: tuple[Line, ...] = ()
    answers: Mapping[str, float] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @property
    def runs(self) -> dict[str, Line]:
        """run id -> the line of its latest export."""
        return {line["run_id"]: line for line in self.exports}

    @property
    def about(self) -> str:
        """How messages refer to the submission."""
        first = self.exports[0]
        run = f"run {short_id(first['run_id'])}, {first['run_name']}"
        return f"submission {self.number} ({minute(first['time'])}, {run})"


class Ledger:
    """The ledger of a folder, `<outputs>/submissions`. Everything except reading needs `with ledger.locked():`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.pending = folder, folder / "ledger.jsonl", folder / "pending"
        self.last = folder / "ledger.last"

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Ledger:
        """The ledger in a config's outputs."""
        return cls(Path(config["outputs"]).absolute() / "submissions")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out, and repair the last line if a killed process left it incomplete."""
        from filelock import FileLock

        self.pending.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "ledger.lock"):
            self._mend()
            yield

    def submissions(self) -> dict[str, Submission]:
        """sha256 -> submission, in the order of the exports. BadInput, with file and line, for an invalid line."""
        found: dict[str, Submission] = {}
        for where, line in self._lines():
            sha256, event, file = (line[name] for name in ("sha256", "event", "file"))
            one = found.get(sha256) or Submission(len(found) + 1, sha256)
            files = (file, *(other for other in one.files if other != file))
            if event == "export":
                found[sha256] = replace(one, exports=(*one.exports, line), files=files)
            elif event == "answer" and sha256 in found:
                answers = {part: line[part] for part in PARTS if part in line}
                found[sha256] = replace(one, answers={**one.answers, **answers}, files=files)
            else:
                raise BadInput(f"{where}: neither an export nor the answer to one. {self._remedy}")
        return found

    def _lines(self) -> Iterator[tuple[str, Line]]:
        """(place, line) of every line. BadInput, with its place, where one was edited, moved or removed."""
        before = ""
        for number, text in numbered_lines(self.file) if self.file.exists() else ():
            where = f"{self.file}:{number}"
            for _, row in json_rows(text.encode(), self.file, number):
                if check_line(row, where).get(BEFORE) != before:
                    raise BadInput(
                        f"{where}: this line does not follow the one above: a line was edited, moved or removed, or "
                        f"an earlier version wrote the ledger. {self._remedy}"
                    )
                yield where, {name: value for name, value in row.items() if name != BEFORE}
            before = digest_text(text)
        if before != self._last():
            raise BadInput(f"{self.file}: the last line was edited or removed. {self._remedy}")

    @property
    def _remedy(self) -> str:
        return (
            f"Put the ledger back as it was, or move {self.folder} away and enter the submissions again: "
            "`harness export run=ID`, then `harness export record`."
        )

    def _last(self) -> str:
        """The sha256 of the last line; "" without lines."""
        return text_file(self.last, LONGEST_HASH).strip() if os.path.lexists(self.last) else ""

    def require_free(self, line: Line) -> None:
        """BadInput if an export would replace or contradict anything that is there. line: as `export` gets it."""
        file, sha256 = Path(line["file"]), line["sha256"]
        for one in self.submissions().values():
            if line["file"] in one.files and one.sha256 != sha256:
                _refuse(line, f"is the file of {one.about}")
        if os.path.lexists(file) and digest_file(file) != sha256:
            _refuse(line, "exists and has other content")
        beside = provenance_of(file)
        if os.path.lexists(beside) and _exported(beside) != sha256:
            _refuse(line, f"has the provenance of another file beside it, {beside.name}")

    def export(self, line: Line, text: str, provenance: str) -> None:
        """Begin an export and write its file, which `settle` then enters; a file that has this content stays.

        BadInput if another process has taken the name since `require_free`.
        """
        self.begin(line, provenance)
        if not create_text(Path(line["file"]), text) and digest_file(line["file"]) != line["sha256"]:
            self._step(line).unlink()
            _refuse(line, "exists by now and has other content")

    def begin(self, line: Line, provenance: str | None = None) -> None:
        """Write a pending step. provenance: of an export; `settle` writes it beside the exported file."""
        step = json.dumps({"line": line, "provenance": provenance}, ensure_ascii=False, allow_nan=False)
        write_text(self._step(line), step + "\n")

    def settle(self, tracker: Tracker) -> None:
        """Complete the pending steps: write provenance files, lines of the ledger, and tags and metrics of the runs.

        An export whose file was never written is dropped. A missing run is logged as a warning. While the tracking
        server is down, a step stays pending for the next command.
        """
        for path in sorted(self.pending.glob("*.json")):
            step = json_file(path)
            line = check_line(required(step, "line", str(path)), str(path))
            export, entered = line["event"] == "export", self._has(line)
            valid = digest_file(line["file"]) == line["sha256"] if export else line["sha256"] in self.submissions()
            if not (valid or entered):
                log.warning("Dropped an interrupted %s: %s", line["event"], line.get("file") or line["sha256"])
                path.unlink()
                continue
            if export and valid:
                create_text(
                    provenance_of(Path(line["file"])), entry(step, "provenance", str, str(path))
                )  # of this content if there is one
            if not entered:
                self._append(line)
            submission = self.submissions()[line["sha256"]]
            if all(_update_run(tracker, submission, run_id) for run_id in submission.runs):
                path.unlink()

    def _step(self, line: Line) -> Path:
        """Where a step is while it is pending."""
        return self.pending / f"{line['time'].replace(':', '')}.json"

    def _has(self, line: Line) -> bool:
        """Whether the ledger has the line; for an export, one of the same content, run and file."""
        names = ("event", "sha256", "run_id", "file") if line["event"] == "export" else tuple(line)
        wanted = [line.get(name) for name in names]
        return wanted in [[other.get(name) for name in names] for _, other in self._lines()]

    def _append(self, line: Line) -> None:
        text = json.dumps({**line, BEFORE: self._last()}, ensure_ascii=False, allow_nan=False)
        with self.file.open("ab") as file:
            file.write(text.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        write_text(self.last, digest_text(text) + "\n")

    def _mend(self) -> None:
        """End the last line, or cut it off if it is incomplete: the step that wrote it is still pending.

        A process may also have been killed after the line and before its hash.
        """
        self._end_line()
        text = next((text for _, text in reversed(list(numbered_lines(self.file)))), "") if self.file.exists() else ""
        with suppress(ValueError, AttributeError, RecursionError):  # what is no line is found when it is read
            if text and json.loads(text).get(BEFORE) == self._last():
                write_text(self.last, digest_text(text) + "\n")

    def _end_line(self) -> None:
        content = self.file.read_bytes() if self.file.is_file() else b""
        torn = content[content.rfind(b"\n") + 1 :]
        if not torn:
            return
        try:
            json.loads(torn)
        except (ValueError, RecursionError):
            log.warning(
                "%s ended with an incomplete line, which was removed: %.80s", self.file, torn.decode(errors="replace")
            )
            os.truncate(self.file, len(content) - len(torn))
            return
        with self.file.open("ab") as file:  # complete except for its line end: edited by hand
            file.write(b"\n")


def check_line(line: Any, where: str) -> Line:
    """A line of the ledger. BadInput, with its place, unless it has the fields of its event."""
    event = line.get("event") if isinstance(line, dict) else None
    if not isinstance(event, str) or event not in EVENTS:
        raise BadInput(f"{where}: neither an export nor the answer to one. {DAMAGED}")
    for name, (kind, what) in EVENTS[event].items():
        value = required(line, name, where)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise BadInput(f"{where}: {name} is {value!r:.60}, but must be {what}. {DAMAGED}")
    for name, values in (("metrics", line.get("metrics", {})), *((part, {part: line.get(part, 0)}) for part in PARTS)):
        if not all(isinstance(one, float | int) and not isinstance(one, bool) for one in values.values()):
            raise BadInput(f"{where}: {name} holds no number. {DAMAGED}")
    checked: Line = line
    return checked


def _refuse(line: Line, why: str) -> NoReturn:
    file = Path(line["file"])
    raise BadInput(
        f"submission={file} {why}. An exported file is never overwritten: choose another name, such as "
        f"submission={file.stem}-{short_id(line['run_id'])}{file.suffix}, or leave `submission` out."
    )


def _exported(provenance: Path) -> str | None:
    """The sha256 of the file that a provenance file is about; None if it cannot be read."""
    try:
        return json_file(provenance).get("sha256")
    except BadInput:
        return None


def _update_run(tracker: Tracker, submission: Submission, run_id: str) -> bool:
    """Write to a run's tags and metrics what the ledger has; False if the server is down, to be tried again later."""
    line = submission.runs[run_id]
    tags = {f"submission.{name}": str(line[name]) for name in ("sha256", "file", "time")}
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
    except Exception as error:  # MLflow's own included: there is no such run, or it was deleted
        log.warning("The ledger has %s, but its run could not be updated: %s", submission.about, error)
    return True


def now() -> str:
    """UTC, ISO 8601, with microseconds, so that no two steps of a ledger have the same time."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def minute(time: str) -> str:
    """A time of the ledger as `2026-07-01 12:30`."""
    return time[:16].replace("T", " ")


def digest_file(path: str | Path) -> str | None:
    """sha256 of a file; None if there is no such file."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except PermissionError:
        raise
    except (OSError, ValueError):  # ValueError: no file can have this name
        return None


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def provenance_of(submission: Path) -> Path:
    """The provenance file of a submission's file."""
    return submission.with_name(submission.name + ".provenance.json")
