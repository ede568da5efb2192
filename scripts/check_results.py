"""Check the exact numbers of docs/results.md: run their commands again and compare the printed digits.

    python scripts/check_results.py DATA [TEXT ...]     # TEXT: only rows that contain one of these texts

DATA holds the folders science_qa, korquad and cranfield; rows without their folder are skipped. Exit code 1 if a number
differs. A comment before a table or a block of output says how to compute it:

    <!-- exact: harness run dataset=contest dataset.path=SCIENCE {1} ; 2 = modified_map@3 ; 3 = oof/mrr (interval) -->

`{1}` is the text in backticks in the first cell of a row, or the cell without remarks in parentheses. `2 = NAME`
compares the first number of the second cell with the run's metric NAME. `(interval)` compares the last two numbers of
the cell with the ends of the metric's interval. A table may have several comments. Cells with ≈ are not compared.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from measuring import ROOT, minilm

DOCUMENT = ROOT / "docs" / "results.md"
FOLDERS = {"SCIENCE": "science_qa", "KORQUAD": "korquad", "CRANFIELD": "cranfield"}  # name in commands -> in DATA
COMMENT = re.compile(r"<!-- exact: harness (.*) -->")
COLUMN = re.compile(r"(\d+) = (\S+)( \(interval\))?")
NUMBER = re.compile(r"(?<![\w.])[-−]?\d*\.\d+")


@dataclass(frozen=True)
class Check:
    """A row of the document. line: its number. printed: metric -> its digits."""

    line: int
    command: str
    printed: Mapping[str, str]


def checks(text: str) -> Iterator[Check]:
    """Yield the exact rows of a document. Raise ValueError, with the line, for one that cannot be understood."""
    comments: list[tuple[str, list[tuple[int, str, bool]]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if found := COMMENT.fullmatch(line.strip()):
            command, *columns = found[1].split(" ; ")
            parsed = [COLUMN.fullmatch(column.strip()) for column in columns]
            if not parsed or None in parsed:
                raise ValueError(f"line {number}: cannot be understood: {line}")
            comments.append((command, [(int(one[1]), one[2], bool(one[3])) for one in parsed if one]))
        elif comments and (cells := _cells(line)):
            for command, columns in comments:
                if printed := _printed(cells, columns, number):
                    yield Check(number, command.replace("{1}", _code(cells[0])), printed)
        if not line.strip():
            comments = []


def _cells(line: str) -> list[str]:
    if line.startswith("|"):
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return re.split(r"\s{2,}", line.strip())


def _code(cell: str) -> str:
    """Return a cell's part of a command: its code, or the cell without remarks in parentheses."""
    return " ".join(re.findall(r"`([^`]*)`", cell)) or re.sub(r"\(.*\)", "", cell).strip()


def _printed(cells: list[str], columns: list[tuple[int, str, bool]], line: int) -> dict[str, str]:
    """Return metric -> its digits in a row; {} for a row without numbers in these columns, such as a header."""
    printed: dict[str, str] = {}
    for column, template, interval in columns:
        metric = template.replace("{1}", _code(cells[0]))
        found = NUMBER.findall(cells[column - 1]) if column <= len(cells) else []
        if not found or "≈" in cells[column - 1]:
            continue
        if interval:
            if len(found) not in (2, 3):
                raise ValueError(f"line {line}: there is no interval in {cells[column - 1]!r}")
            kind, slash, name = metric.rpartition("/")
            *found, low, high = found
            printed |= {f"{kind}{slash}interval_low/{name}": low, f"{kind}{slash}interval_high/{name}": high}
        if found:
            printed[metric] = found[0]
    return printed


def agrees(printed: str, value: float | None) -> bool:
    digits = printed.replace("−", "-")
    return value is not None and float(digits) == float(f"{value:.{len(digits.partition('.')[2])}f}")


def computed(command: str, outputs: Path) -> Mapping[str, float]:
    """Run a `harness` command; return the metrics that it logs, by MLflow's names."""
    from harness.cli import call
    from harness.recording.logged_run import in_full
    from harness.tracking.mlflow_tracker import MlflowTracker

    verb, *words = shlex.split(command)
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        code = call(verb, [*words, f"outputs={outputs}", "format=json"])
    if code:
        raise RuntimeError(f"harness {command} exited with {code}")
    tracker = MlflowTracker()
    tracker.connect(outputs)
    return in_full(tracker, tracker.run(json.loads(text.getvalue())["run_id"])).metrics


def with_folders(command: str, data: Path) -> str | None:
    """Return the command with the real folders; None if one is missing."""
    folders = {name: data.absolute() / folder for name, folder in FOLDERS.items()} | {"MINILM": minilm()}
    for name, folder in folders.items():
        if name in command and not (folder and folder.is_dir()):
            return None
        command = command.replace(name, str(folder))
    return command


def main(data: Path, texts: list[str], document: Path = DOCUMENT) -> int:
    from harness.tracking.tracker import mlflow_name

    wrong, known = 0, dict[str, Mapping[str, float]]()
    with tempfile.TemporaryDirectory() as outputs:
        for check in checks(document.read_text("utf-8")):
            about = f"line {check.line}: {check.command}"
            if texts and not any(text in about for text in texts):
                continue
            command = with_folders(check.command, data)
            if command is None:
                print(f"skipped, no data: {about}")
                continue
            if command not in known:
                known[command] = computed(command, Path(outputs))
            found = {metric: known[command].get(mlflow_name(metric)) for metric in check.printed}
            differing = [metric for metric, digits in check.printed.items() if not agrees(digits, found[metric])]
            for metric in differing:
                print(f"{about}: {metric} is printed as {check.printed[metric]} and is {found[metric]}", flush=True)
            wrong += len(differing)
            if not differing:
                print(f"as printed: {about}", flush=True)
    print(f"{wrong} numbers differ" if wrong else "no number differs")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
