"""Score files of ranked lists. `harness score` logs such a file as a run; other commands read it like a logged run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.config.canonical import digest
from harness.config.check import Invocation
from harness.config.commands import FilesConfig, ScoreConfig
from harness.config.components import with_absolute_paths
from harness.data.dataset import Dataset
from harness.data.files import some
from harness.data.predictions import read_predictions
from harness.errors import BadInput
from harness.experiment.file_scores import file_scores, lists_digest
from harness.measures import measures
from harness.measures.objective import objective_of
from harness.measures.scores import Scores
from harness.recording import provenance, retrieval_run
from harness.storage.atomic import write_parts, write_text
from harness.tracking.tracker import Input, LoggedRun, NoFile, RunRecord, Tracker

ID = re.compile(r"[0-9a-f]{4,32}")
SCORING = ("dataset", "missing", "public")  # config keys that say how files are scored


@dataclass(frozen=True, eq=False)
class FileScores:
    """The scores of a file of ranked lists, and its record as a run. config: the config with absolute paths."""

    config: ScoreConfig
    scores: Scores
    numbers: Mapping[str, float]
    record: RunRecord

    @classmethod
    def of(cls, config: ScoreConfig, choices: Mapping[str, str]) -> FileScores:
        for name in [*(config.metrics or ()), config.objective]:
            measures.parse_measure(name)
        config = ScoreConfig.of(with_absolute_paths(config.document))
        predictions = read_predictions(config.predictions)
        scores, qrels = file_scores(config, predictions)
        objective = objective_of(config.objective, scores, None, "all")
        numbers = retrieval_run.scores_by_name(scores)
        made_of = Dataset("", (), (), qrels).fingerprints
        labels: dict[str, str | None] = {name: made_of[name] for name in ("qrels", "evidence") if name in made_of}
        lists = {"harness.verb": "score", retrieval_run.LISTS: lists_digest(predictions)}
        place = retrieval_run.place_of_part(config.dataset, "qrels")
        record = RunRecord(
            config.experiment_name,
            config.run_name or config.predictions.name,
            params=retrieval_run.plain_params(config.document, choices),
            tags=provenance.provenance(labels) | lists,
            inputs={"qrels": Input(choices["dataset"], str(labels["qrels"]), place, len(qrels.grades))},
            objective=objective,
            shows_private=True,
        )
        return cls(config, scores, numbers, record)

    def write(self, folder: Path) -> None:
        """Write the files that commands read from a run, and complete the record."""
        shutil.copyfile(self.config.predictions, folder / retrieval_run.stored(self.config.predictions))
        files, tags = retrieval_run.score_files(self.scores)
        self.record.end_tags |= tags
        write_text(folder / "config.yaml", provenance.resolved(self.config.document))
        for name, parts in files.items():
            write_parts(folder / name, parts)
        retrieval_run.write_metrics(folder, self.record, self.numbers, self.record.objective)


class FileRuns(Tracker):
    """Reads files of ranked lists as runs. folder: the parent of a folder of scores for each file."""

    choice = "files"
    uri: str | None = "files"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._runs: dict[str, LoggedRun] = {}

    def add(self, word: str, config: ScoreConfig, choices: Mapping[str, str]) -> None:
        """Score the file that the command line calls `word`. Raise BadInput if it cannot be scored."""
        scored = FileScores.of(config, choices)
        run_id = digest([str(scored.config.predictions), scored.record.tags[retrieval_run.LISTS]])[:32]
        (own := self.folder / run_id).mkdir(parents=True, exist_ok=True)
        scored.write(own)
        logged = replace(scored.record.logged(run_id), name=word, experiment=choices["dataset"])
        self._runs[word] = self._runs[run_id] = logged

    def run(self, run_id: str) -> LoggedRun:
        return self._runs[run_id]

    def download(self, run: LoggedRun, name: str, folder: Path) -> Path:
        if (file := self.folder / run.run_id / name).is_file():
            return file
        raise NoFile(f"{run.name} has no {name}.")


def open_run_files(
    words: Sequence[str], config: FilesConfig, invocation: Invocation, folder: Path, seed: int = 0
) -> FileRuns | None:
    """Return the scores of the files in `words`; None if `words` contains no file.

    Raise BadInput if only some words are files, or if a file cannot be scored.
    folder: the folder for the scores. seed: the seed of the public part and of the bootstrap.
    """
    named = [word for word in words if not ID.fullmatch(word)]
    files = [word for word in named if "/" in word or Path(word).suffix or Path(word).exists()]
    if not files:
        if given := scoring_words(invocation):
            raise BadInput(
                f"{' '.join(given)}: this says how files are scored, but logged runs have scores already. Leave it "
                "out, or name files: 'runs=[A.run,B.run]'."
            )
        return None
    if others := [word for word in words if word not in files]:
        raise BadInput(
            f"runs=[...] mixes files ({some(files)}) and logged runs ({some(others)}). Name only files or only runs, "
            f"or log each file as a run: harness score predictions={files[0]}"
        )
    if config.task:
        raise BadInput(
            f"runs=[...] names files ({some(files)}), but a text task needs logged runs. Score each file "
            f"first: `harness score task={invocation.choices['task']} predictions=FILE references=FILE`."
        )
    if not config.dataset:
        raise BadInput(
            f"runs=[...] names files ({some(files)}): say which labels score them, such as dataset=trec "
            "dataset.qrels=FILE, or dataset=beir dataset.path=FOLDER."
        )
    objective = config.metric or config.objective
    scoring = {name: config.document[name] for name in (*SCORING, "experiment_name", "outputs")}
    scoring |= {"metrics": list(dict.fromkeys([*(config.metrics or ()), objective])), "objective": objective}
    scoring |= {"run_name": None, "seed": seed, "store": {"path": str(config.outputs / "cache")}}
    found = FileRuns(folder)
    for word in files:
        found.add(word, ScoreConfig.of(scoring | {"predictions": word}), invocation.choices)
    return found


def scoring_words(invocation: Invocation) -> list[str]:
    """Return the words of a command line that say how files are scored."""
    return [word for word in invocation.overrides if re.split("[.=]", word.lstrip("+~"))[0] in SCORING]
