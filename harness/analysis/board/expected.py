"""The score to expect of the best run of an experiment on new queries.

The best of many runs scores too high on the queries it was chosen by. Three numbers correct this, most honest first:
1. private: the mean over private queries, which had no part in the choice;
2. replay: on some of the queries, `sweep=auto` chooses settings anew, which are scored on the other queries;
3. choice: the choice among the runs is cross-validated, no matter how the runs were made.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from harness.analysis.board.runs import BoardRuns, check_by_query, of_tables, tables
from harness.analysis.ranking import RankedRun, Wanted, chosen_runs, differ
from harness.config.text import counted
from harness.errors import BadInput
from harness.gates.calibration import CLOSE, folds
from harness.reports.markup import Words, interval
from harness.statistics.bootstrap import bootstrap_means
from harness.tracking.tracker import LoggedRun, Tracker, member_tag

FOLDS, REPEATS, SEED = 10, 5, 0
MOST = 200  # `expected_of_run` reads the scores by query only if there are at most this many runs
LUCK = 0.0005  # if the best score exceeds the expected score by at most this, nothing is said about luck

How = Literal["private", "replay", "choice", "unknown"]


@dataclass(frozen=True)
class Expected:
    """The score to expect of the best run on new queries.

    run_id: the best run; None if it is not logged.
    best: the score of the best run on the queries by which it was chosen.
    value, low, high: the expected score and its 95 % interval; NaN if unknown, see `reason`.
    runs: the number of runs on which the value rests. of: the number of comparable runs.
    alone: whether all runs are trials of one sweep.
    private: the number of private queries averaged; 0 unless `how` is "private".
    raw: whether the labels come partly from a model; if so, the values are not corrected for its errors.
    """

    metric: str
    run_id: str | None
    best: float
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    how: How = "unknown"
    runs: int = 0
    of: int = 0
    private: int = 0
    alone: bool = False
    raw: bool = False
    reason: str = ""
    json_too = ("sentence",)

    @property
    def sentence(self) -> str:
        return self.words.en

    @property
    def words(self) -> Words:
        """The meaning of the expected score, and how it was found."""
        if self.how == "unknown":
            return Words(self.reason, self.reason)
        ends, value, best = interval(self.low, self.high, absent=""), f"{self.value:.3f}", f"{self.best:.3f}"
        luck = Words("the choice shows no sign of luck.", "운 좋게 뽑힌 흔적은 없습니다.")
        if self.best - self.value > LUCK:
            chose, ko = ("public queries", "public 질의") if self.how == "private" else ("same labels", "같은 라벨")
            luck = Words(
                f"{best} is partly luck, because the {chose} chose it.",
                f"{ko}로 골랐으므로 {best}에는 운이 섞여 있습니다.",
            )
        found, rests = self._found, Words("", "")
        if self.runs < self.of and self.how != "private":
            rests = Words(
                f" It rests on {self.runs:,} of the {self.of:,} comparable runs.",
                f" 비교할 수 있는 실행 {self.of:,}개 가운데 {self.runs:,}개로 계산했습니다.",
            )
        return Words(
            f"Expect {'a raw value of ' if self.raw else ''}about {value} on new queries"
            f"{f' (95 % interval {ends})' if ends else ''}: {luck.en} ({found.en}){rests.en}",
            f"새 질의에서 기대할 수 있는 {'보정하지 않은 ' if self.raw else ''}값은 약 {value}"
            f"{f'(95 % 신뢰구간 {ends})' if ends else ''}입니다. {luck.ko} ({found.ko}){rests.ko}",
        )

    @property
    def _found(self) -> Words:
        if self.how == "private":
            queries = counted(self.private, "private query")
            return Words(
                f"Mean of {queries}, which had no part in the choice.",
                f"선택에 쓰지 않은 private 질의 {self.private:,}개의 평균",
            )
        if self.how == "replay":
            return Words("Replay of the whole sweep, out of fold.", "폴드마다 그 라벨 없이 스윕 전체를 되풀이한 값")
        among = f"{self.runs:,} trials of this sweep" if self.alone else f"{self.runs:,} runs"
        return Words(f"Cross-validated choice among {among}.", f"실행 {self.runs:,}개 중 선택을 교차 검증한 값")


@dataclass(frozen=True)
class Replay:
    """The scores of replays: each repeats a sweep on some of the queries, and scores its choice on the others.

    winner: the score of the sweep's best trial. value, low, high: the mean of the replays and its 95 % interval.
    """

    sweep_id: str
    winner: float
    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, eq=False)
class RunFamily:
    """Comparable runs, the best first, from which one is chosen.

    read: called with n, returns the values of n or more runs, the best first. `of`, `alone`: see `Expected`.
    """

    metric: str
    select_on: str
    runs: Sequence[RankedRun]
    of: int
    read: Callable[[int], BoardRuns]
    alone: bool = False

    def expected(self, replay: Replay | None, most: int | None = None) -> Expected | None:
        """Return the score to expect of the best run; None with fewer than two runs or fewer than two queries.

        replay: the replay of a sweep whose best trial may be the best run.
        most: if there are more runs than this, the choice among them is not cross-validated; None for no limit.
        """
        if len(self.runs) < 2:
            return None
        first = self.runs[0]
        start = Expected(
            metric=self.metric,
            run_id=first.run.run_id or None,
            best=first.score.value,
            runs=len(self.runs),
            of=max(self.of, len(self.runs)),
            alone=self.alone,
            raw=first.score.estimate is not None,
        )
        try:
            return self._found(start, replay, most)
        except BadInput as error:
            return replace(start, runs=0, reason=f"What to expect on new queries is unknown: {error}")

    def known_to(self, replay: Replay) -> int:
        """Return how many of the runs are trials of the replayed sweep."""
        member = member_tag(replay.sweep_id)
        return sum(any(member in run.tags for run in (one.run, *one.also)) for one in self.runs)

    def _found(self, start: Expected, replay: Replay | None, most: int | None) -> Expected | None:
        if self.select_on == "public" and (known := self._private(start)):
            return known
        if replay and replay.winner > start.best - CLOSE:
            knows = len(self.runs) if self.alone else self.known_to(replay)
            return replace(start, how="replay", value=replay.value, low=replay.low, high=replay.high, runs=knows)
        if most is not None and len(self.runs) > most:
            return replace(
                start,
                runs=0,
                reason=f"{len(self.runs):,} runs are comparable, but at most {most:,} are read here: `harness "
                "board` says what to expect on new queries.",
            )
        return self._choice(start)

    def _private(self, start: Expected) -> Expected | None:
        known = self.read(1)
        values = known.values[0, ~known.public]
        values = values[~np.isnan(values)]
        if not len(values):
            return None
        [low], [high], _ = bootstrap_means(values[None], SEED)
        mean = float(values.mean())
        return replace(start, how="private", value=mean, low=float(low), high=float(high), private=len(values))

    def _choice(self, start: Expected) -> Expected | None:
        known = self.read(len(self.runs))
        counts = ~np.isnan(known.values).any(axis=0)
        counts &= known.public if self.select_on == "public" else True
        if counts.sum() < 2:
            return None
        value = cross_validated_choice(known.values[:, counts], known.needs[counts])
        return replace(start, how="choice", value=value)


def of_board(tracker: Tracker, runs: BoardRuns, whole: bool) -> Expected | None:
    """Return the score to expect of a board's best run; None for text tasks.

    whole: whether the board has all comparable runs.
    """
    if runs.submissions:
        return None
    best, of = runs.runs[0], len(runs.runs)
    if not whole:
        with suppress(BadInput):  # raised if no two runs are comparable
            of = len(chosen_runs(tracker, Wanted(best.run.experiment, runs.metric, runs.select_on, like=best.run)).runs)
    family = RunFamily(runs.metric, runs.select_on, runs.runs, of, lambda count: runs)
    return family.expected(_replay(tracker, family))


def expected_of_run(tracker: Tracker, run: LoggedRun, metric: str, select_on: str | None = None) -> Expected | None:
    """Return the score to expect of a run if it is the best of its experiment; otherwise None."""
    select_on = select_on or run.select_on
    score = run.score(metric, select_on)
    found = of_experiment(tracker, Wanted(run.experiment, metric, select_on, like=run), MOST) if score else None
    return found if found and score and score.value > found.best - CLOSE else None


def shown_of_run(tracker: Tracker, run: LoggedRun, metric: str, select_on: str | None = None) -> Expected | None:
    """Return the result of `expected_of_run`. If it rests on private queries, count one more look at their scores."""
    found = expected_of_run(tracker, run, metric, select_on)
    if found and found.how == "private":
        tracker.count_private_view(run.experiment)
    return found


def of_experiment(
    tracker: Tracker, asked: Wanted, most: int | None = None, replay: Replay | None = None
) -> Expected | None:
    """Return the score to expect of the best run of an experiment; None with fewer than two comparable runs.

    asked: `asked.runs` is ignored. most: see `RunFamily.expected`. replay: a replay that is not logged yet, or None.
    """
    try:
        check_by_query(asked.metric)
        found = chosen_runs(tracker, replace(asked, runs=None))
    except BadInput:  # the measure has no values by query, or fewer than two runs differ
        return None
    with tempfile.TemporaryDirectory() as folder:

        def read(count: int) -> BoardRuns:
            first = replace(found, runs=found.runs[:count])
            runs, known = [one.run for one in first.runs], asked.read.tables if asked.read else None
            return of_tables(first, asked.metric, tables(tracker, runs, asked.metric, Path(folder), known))

        family = RunFamily(asked.metric, found.select_on, found.runs, len(found.runs), read)
        return family.expected(replay or _replay(tracker, family), most)


def _replay(tracker: Tracker, family: RunFamily) -> Replay | None:
    """Return the replay of a sweep whose best trial is comparable with the best run and scores no less; else None.

    If there are several such sweeps, take the sweep with the most trials among the runs.
    """
    best, metric, select_on = family.runs[0], family.metric, family.select_on
    found = []
    for sweep in tracker.runs(best.run.experiment, {"harness.verb": "sweep"}):
        one, value = sweep.objective, sweep.metrics.get("procedure/value")
        if one is None or value is None or (one.name, one.select_on) != (metric, select_on):
            continue
        if one.value <= best.score.value - CLOSE:
            continue
        with suppress(BadInput):  # raised if the best trial was deleted
            if not differ(best.run, tracker.run(sweep.tags.get("best.run_id", "")), metric, select_on):
                low, high = (sweep.metrics.get(f"procedure/{end}", math.nan) for end in ("low", "high"))
                found.append(Replay(sweep.tags["sweep.id"], one.value, value, low, high))
    return max(found, key=family.known_to, default=None)


def cross_validated_choice(values: np.ndarray, needs: np.ndarray, seed: int = SEED) -> float:
    """Give each query the score of the run that is best on the folds without it. Return the mean of these scores.

    If several runs are tied, the query gets the mean of their scores.
    values: of R runs on n >= 2 queries, float64 [R, n].
    needs: bool [n], whether a query needs retrieval; the folds are stratified by this.
    """
    count = min(FOLDS, values.shape[1])
    means = []
    for repeat in range(REPEATS):
        inside = folds(needs, count, 1000 * seed + repeat) == np.arange(count)[:, None]
        sums = values @ inside.T.astype(np.float64)  # [R, folds]
        sizes = inside.sum(axis=1)
        others = (sums.sum(axis=1, keepdims=True) - sums) / (values.shape[1] - sizes)
        best = others > others.max(axis=0) - CLOSE
        means.append(((sums * best).sum(axis=0) / best.sum(axis=0)).sum() / values.shape[1])
    return float(np.mean(means))
