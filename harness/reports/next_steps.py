"""Commands to run next, ready to be copied. Each one finds the same runs as the command that suggests it."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from harness.config import manual, yaml_files
from harness.config.check import Invocation, primary
from harness.config.defaults import FILE, command_defaults, read_defaults
from harness.config.schema import Config

if TYPE_CHECKING:  # at run time, the import would load numpy and slow down `harness`
    from harness.experiment.plan import Plan

RETRIEVAL = "retrieval"
DATASETS = {  # choice of dataset -> the files by which a folder is recognised
    "contest": ("documents.jsonl", "eval.jsonl"),
    "beir": ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"),
    "autorag": ("corpus.parquet", "qa.parquet"),
}
SAMPLE = "harness.data.contest.Sample"  # the class of the default dataset
TEXTS = (".txt", ".text", ".md", ".markdown", ".html", ".htm", ".xhtml", ".pdf", ".hwpx")  # what `prepare` reads
NAMES, FOLDERS, LATEST = 1000, 50, 5  # the maximum number of names in a folder, of folders, and of runs to look at
EMPTY = (
    "No runs and no data are here yet. Try the Korean sample, which is installed. For your own data, copy text files, "
    "or documents.jsonl and eval.jsonl, into a folder here, and type `harness` again."
)


@dataclass(frozen=True)
class Place:
    """Where a command's runs are. config: the command's resolved config. choices: config group -> config name."""

    config: Mapping[str, Any]
    choices: Mapping[str, str | None]
    config_dir: str | None = None

    @classmethod
    def of(cls, config: Config | Plan, invocation: Invocation) -> Place:
        return cls(config.document, invocation.choices, invocation.config_dir)

    def command(self, verb: str, *words: str, metric: str | None = None) -> str:
        """Return `harness VERB`, these words, and words by which it finds the same runs, all quoted for the shell.

        Words that repeat a default, such as a setting in `harness.yaml`, are left out. metric: None for the default.
        """
        name, task = primary(verb), self.choices.get("task") or RETRIEVAL
        own = manual.manual(name)
        said = [f"task={task}"] if task != RETRIEVAL and "task" in own.groups else []
        known = {key: entry.value for key, entry in own.keys.items()}
        known |= {key: entry.value for key, entry in (manual.manual_keys("task", task) if said else {}).items()}
        file = {one.key: one.text for one in command_defaults(name, [*flag(self.config_dir), *said]).settings}
        known |= file
        if metric not in (None, known.get("metric")):
            words = (f"metric={metric}", *words)
        given = {word.partition("=")[0] for word in words}
        for key, value in self._values(file).items():
            if own.has(key) and key not in given and value is not None and value != known.get(key):
                said.append(f"{key}={value}")
        return shlex.join(["harness", *verb.split(), *flag(self.config_dir), *said, *words])

    def _values(self, file: Mapping[str, str]) -> dict[str, str | None]:
        """Return key -> value for the keys that say where runs are; None if the command finds the value itself."""
        config = self.config
        uri = config["tracking"].get("uri")
        from_environment = "tracking.uri" not in file and uri == os.environ.get("MLFLOW_TRACKING_URI")
        cache = config.get("store", {}).get("path")
        usual = os.environ.get("HARNESS_CACHE") or f"{config['outputs']}/cache"
        return {
            "outputs": config["outputs"],
            "tracking.uri": None if from_environment or (uri and urlsplit(uri).password) else uri,
            "experiment_name": config["experiment_name"],
            "store.path": None if "store.path" not in file and cache == usual else cache,
        }


def flag(config_dir: str | None) -> list[str]:
    """Return [`--config-dir=FOLDER`]; [] without a folder."""
    return [f"--config-dir={config_dir}"] if config_dir else []


def next_here(config_dir: str | None = None) -> tuple[str, list[str]]:
    """Return what the working folder has, and the commands to run next in it. Look at names, not into data."""
    settings = {one.key: one.text for one in read_defaults(Path(FILE), [Path(config_dir)] if config_dir else [])}
    outputs = Path(settings.get("outputs", "outputs"))
    runs = [*outputs.glob("runs/*[0-9]/config.yaml"), *outputs.glob("sweeps/*/best/config.yaml")]
    if runs:
        return _after(sorted(runs, key=lambda file: file.stat().st_mtime)[-LATEST:], str(outputs), config_dir)
    if (outputs / "testset" / "testset.json").is_file():
        words = ["dataset=testset", f"dataset.path={outputs / 'testset'}"]
        return "A test set is here, but no run.", [shlex.join(["harness", "run", *flag(config_dir), *words])]
    if (outputs / "documents" / "manifest.json").is_file():
        return "Prepared documents are here, but no queries.", ["harness testset draft model=NAME dry_run=true"]
    if settings:
        words = ["score", "predictions=FILE", "references=FILE"] if "task" in settings else ["run"]
        line = shlex.join(["harness", words[0], *flag(config_dir), *words[1:]])
        return f"{FILE} has the defaults. No run is here yet.", [line]
    return _before(outputs)


def _after(runs: Sequence[Path], outputs: str, config_dir: str | None) -> tuple[str, list[str]]:
    """Return what to do after the runs of these config files, the latest last."""
    configs = [yaml_files.load_yaml(file) | {"format": ""} for file in runs]
    name = configs[-1]["experiment_name"]
    place = Place({"outputs": outputs, "experiment_name": name, "tracking": {}}, {}, config_dir)
    said = f"The latest run is of experiment {name!r}."
    if not runs[-1].with_name("scores.csv").is_file():
        if not runs[-1].with_name("items.csv").is_file():  # the scores of a text task
            said += " It has no scores: its queries have no labels. `harness testset draft` makes some."
        return said, [place.command("runs"), place.command("ui")]
    others = (one for one in configs if one["experiment_name"] == name and one != configs[-1])
    several = runs[-1].parent.name == "best" or any(others)
    return said, [place.command(verb) for verb in ("runs", *["board"] * several, "advise")]


def label_files(folder: Path) -> list[Path]:
    """Return the files that may be the labels of a contest's folder; [] if it has qrels.jsonl."""
    usual = any((folder / name).is_file() for name in ("qrels.jsonl", "qrels.jsonl.gz"))
    return [] if usual else sorted(folder.glob("*qrels*.jsonl"))


def sample_note(config: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """Return [a note] if a command used the shipped sample by default, and a dataset is here; otherwise [].

    config: the command's resolved config. words: all its overrides, those of `harness.yaml` included.
    """
    if (config.get("dataset") or {}).get("_target_") != SAMPLE or any(word.startswith("dataset=") for word in words):
        return []
    found = None
    with suppress(OSError):  # a folder here that cannot be read must not fail the command
        found = _dataset(Path(config["outputs"]))
    if not found:
        return []
    remedy = f"`{shlex.join(['harness', 'init', *found[2]])}` makes them the default."
    if Path(FILE).exists():  # `init` would refuse to drop its lines
        remedy = (
            f"to make them the default, write {', '.join(one.replace('=', ': ', 1) for one in found[2])} in {FILE}."
        )
    return [f"The shipped sample. {found[1]} are here, too: {remedy}"]


def _folders(outputs: Path) -> list[Path]:
    """Return the working folder and its folders that may have data."""
    inner = [one for one in islice(Path().iterdir(), NAMES) if one.is_dir() and one.name[0] != "." and one != outputs]
    return [Path(), *(one for one in sorted(inner)[:FOLDERS] if os.access(one, os.R_OK | os.X_OK))]


def _dataset(outputs: Path) -> tuple[str, str, list[str]] | None:
    """Return the first dataset here: (choice of dataset, names of its files, words that name it)."""
    for folder in _folders(outputs):
        for choice, files in DATASETS.items():
            if all((folder / name).is_file() for name in files):
                words = [f"dataset={choice}", f"dataset.path={folder}"]
                labels = label_files(folder)[:1] if choice == "contest" else []
                words += [f"dataset.qrels={one}" for one in labels]
                return choice, " and ".join(str(folder / name) for name in files), words
    return None


def _before(outputs: Path) -> tuple[str, list[str]]:
    """Return what to do with the data in the working folder and in its folders."""
    if found := _dataset(outputs):
        choice, files, words = found
        steps = [shlex.join(["harness", "init", *words]), "harness run"]
        return f"Found {files}, as dataset={choice} reads them.", steps
    for folder in _folders(outputs):
        names = Counter(Path(one.name).suffix for one in islice(os.scandir(folder), NAMES))
        suffix = max(names, key=lambda one: (one.lower() in TEXTS, names[one]), default="")
        if suffix.lower() in TEXTS and names[suffix] > 1:
            pattern = f"{folder}/**/*{suffix}" if folder != Path() else f"*{suffix}"
            return f"Found {names[suffix]} files {pattern}.", [shlex.join(["harness", "prepare", f"files={pattern}"])]
    return EMPTY, ["harness run"]
