"""Submissions to a text task, as a comparison asks of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.analysis.board.runs import BoardRun, BoardRuns, of_submissions
from harness.analysis.comparison.comparison import Changed, Pair, Rows, RunScores, ScoredRuns
from harness.analysis.submissions import Submissions
from harness.config.commands import CompareConfig
from harness.errors import BadInput
from harness.measures.objective import Kind
from harness.statistics.significance import Difference, tally_differences
from harness.statistics.split import Score, Standing
from harness.tasks.scored_file import check_measure, measure_all, measure_kind, strata, summaries


@dataclass(frozen=True, eq=False)
class TaskRuns(ScoredRuns):
    """Submissions with their labels."""

    noun, unit = "submissions", "items"
    names: Sequence[str]
    found: Submissions

    @property
    def labels(self) -> list[str]:
        return [*self.names]

    @property
    def task(self) -> str:
        return self.found.task.name

    @property
    def public(self) -> np.ndarray:
        return self.found.files[0].public

    @property
    def strata(self) -> np.ndarray:
        return strata(self.found.files[0].kinds)

    def take(self, rows: np.ndarray) -> TaskRuns:
        return replace(self, found=self.found.take(rows))

    def measures(self, metric: str, judges: np.ndarray) -> tuple[list[str], list[str]]:
        """Those that every file has."""
        task, files = self.found.task, self.found.files
        check_measure(task, "metric", metric)
        means = [measure_all(task, file.counts, judges) for file in files]
        shared = [name for name in task.measures if all(mean[name] == mean[name] for mean in means)]
        if metric not in shared:
            lacking = next(file.run for file, of in zip(files, means, strict=True) if of[metric] != of[metric])
            raise BadInput(f"metric={metric} is absent from run {lacking.named}. All runs have: {', '.join(shared)}.")
        return shared, []

    def score(self, metric: str) -> Score:
        tallies = self.found.tallies([metric])
        return lambda rows: np.vstack([one.measure(rows @ one.table) for one in tallies])

    def values(self, metric: str) -> np.ndarray:
        return self.found.values(metric)

    def differences(
        self, names: Sequence[str], config: CompareConfig, pairs: Sequence[Rows]
    ) -> dict[Rows, list[Difference]]:
        return tally_differences(self.found.tallies(names), config.seed, config.resamples, pairs)

    def part_gaps(self, names: Sequence[str], pair: Rows) -> Iterator[tuple[str, str, int, float]]:
        task, files = self.found.task, self.found.files
        kinds = np.array(files[0].kinds, dtype=object)
        every = sorted({*files[0].kinds})
        parts = [(kind, kinds == kind, measure_kind) for kind in every] if len(every) > 1 else []
        if self.public.any():
            parts += [("public", self.public, measure_all), ("private", ~self.public, measure_all)]
        for part, inside, measure in parts:
            ours, theirs = (measure(task, files[row].counts, inside) for row in pair)
            for name in names:
                gap = ours[name] - theirs[name] if inside.any() else math.nan
                yield name, part, int(inside.sum()), float(gap)

    def scores(self, names: Sequence[str], config: CompareConfig, boards: Sequence[Standing | None]) -> list[RunScores]:
        found = []
        kind: Kind = "held out" if config.select_on == "public" else "in sample"
        for label, file, board in zip(self.labels, self.found.files, boards, strict=True):
            known = summaries(self.found.task, file.counts, names, config.seed, config.resamples)
            ends = {name: (one.low, one.high) for name, one in known.items() if one.low == one.low}
            means = {name: one.mean for name, one in known.items()}
            found.append(RunScores(label=label, run=file.run, kind=kind, metrics=means, intervals=ends, board=board))
        return found

    def changed(self, pair: Pair, row: int, values: Mapping[str, float]) -> Changed:
        item_id = self.found.item_ids[row]
        both = Submissions([self.found.files[self.labels.index(label)] for label in values])
        texts, items = both.texts(item_id)
        said = {label: item.get("prediction") for label, item in zip(values, items, strict=True)}
        return Changed(pair, item_id, values, {"id": item_id, **texts}, predictions=said)

    def on_board(self, metric: str, select_on: str, placed: Sequence[BoardRun], order: Sequence[int]) -> BoardRuns:
        return of_submissions(metric, select_on, placed, Submissions([self.found.files[place] for place in order]))

    def notes(self) -> list[str]:
        bare = [label for label, file in zip(self.labels, self.found.files, strict=True) if not file.items]
        if bare:
            return [f"No texts of {', '.join(bare)}: trials of a sweep keep none. Score their files to see them."]
        return []
