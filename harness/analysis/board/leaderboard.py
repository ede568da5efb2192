"""The leaderboard: runs by score, with their costs, a test of each run against the best run, and a recommendation.

The recommended run has the highest score. Among runs with equal scores, a run that asks no language model is preferred,
then the quickest run, then the run whose indexes take the least space, then the run listed first. A second run
is named if the test finds no difference between it and the best run, and if it is much cheaper: it asks no language
model while the recommended run asks one, or it takes at most a tenth of the recommended run's time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from harness.analysis.board.expected import Expected
from harness.analysis.board.runs import LOSSES, BoardRuns
from harness.analysis.board.settings import changes
from harness.config.text import counted
from harness.experiment.timing import MS
from harness.experiment.writing import WRITTEN
from harness.gates.calibration import CLOSE
from harness.measures.measures import LOSING, MERGED
from harness.recording.load_run import P95, QPS, under_load
from harness.reports.markup import Words
from harness.statistics.significance import ALPHA
from harness.storage.typed import HIDDEN, key_named
from harness.tracking.tracker import LoggedRun

INDEX = "index_mb"
KOREAN = {"query": "질의", "item": "항목"}
MUCH = 10  # a run this many times quicker than the recommended run is named beside it
OF_THE_LISTS = Words(
    " They may use the labels of these queries; the score, out of fold, does not.",
    " 이 목록은 그 질의의 라벨을 썼을 수 있지만, 폴드 밖 점수는 쓰지 않았습니다.",
)
LOST = {
    "wrongly_returned": Words("documents are returned where none are needed", "필요 없는 문서를 반환해서"),
    "wrongly_withheld": Words("the gate withholds documents that are needed", "필요한 문서를 게이트가 막아서"),
    "not_found": Words("no relevant document is found", "관련 문서를 찾지 못해서"),
    "misranked": Words("relevant documents rank too low", "관련 문서의 순위가 낮아서"),
    MERGED: Words("relevant documents are not found or rank too low", "관련 문서를 찾지 못했거나 순위가 낮아서"),
}
ESTIMATED = (
    "The labels come partly from a model. The runs are ordered by their raw means. Estimates show the scores that "
    "people's labels would give. No difference is tested; `harness compare` tests pairs of these runs."
)


@dataclass(frozen=True)
class Row:
    """A run on the leaderboard.

    run: the index of the run in `BoardRuns.runs`. value: the score that decides the order.
    group: "same" if the test finds no difference from the best run; None if nothing was tested.
    difference: the mean of this run minus the mean of the best run, over the queries on which both have a value.
    p, p_holm: from the paired randomisation test against the best run, without and with Holm's correction; NaN for the
        best run itself and if labels come partly from a model.
    ms: milliseconds per query, without a language model's time; None if unknown.
    mb: megabytes of the indexes; None if unknown.
    p95_ms, qps: latency and answers per second at the knee of the latest load of this configuration; None if unknown.
    asks_model: whether the run asks a language model about each query.
    changed: the settings that differ from the run above, as {key, above, here}; None for an absent setting.
    public, public_rank, private, private_rank: score and rank on each part of the queries; None unless the public part
        decides the order.
    """

    run: int
    name: str = field(metadata=HIDDEN)
    value: float = field(metadata=HIDDEN)
    group: Literal["best", "same", "worse"] | None
    difference: float = 0.0
    p: float = math.nan
    p_holm: float = math.nan
    ms: float | None = None
    mb: float | None = None
    p95_ms: float | None = None
    qps: float | None = None
    asks_model: bool = False
    changed: tuple[Mapping[str, str | None], ...] = ()
    public: float | None = None
    public_rank: int | None = None
    private: float | None = None
    private_rank: int | None = None

    @property
    def tied(self) -> bool:
        return self.group in ("best", "same")

    @property
    def cost(self) -> tuple[float, float]:
        return (math.inf if self.ms is None else self.ms, math.inf if self.mb is None else self.mb)


@dataclass(frozen=True)
class Pick:
    """A recommendation. run: the index of the recommended run.

    instead: the index of a much cheaper run that does not differ significantly from the recommended run, or None.
    """

    run: int
    reason: Words
    instead: int | None = None


@dataclass(frozen=True)
class Leaderboard:
    """The leaderboard of a board. rows: the best first. facts: sentences about the recommended run."""

    rows: tuple[Row, ...]
    pick: Pick = field(metadata=key_named("recommended"))
    expected: Expected | None
    facts: tuple[Words, ...]
    notes: tuple[str, ...] = ()
    alpha: float = ALPHA
    json_too = ("pairs",)

    @property
    def pairs(self) -> int:
        """The number of pairs that p is corrected for."""
        return len(self.rows) - 1


def leaderboard(
    runs: BoardRuns, expected: Expected | None = None, loads: Mapping[str, LoggedRun] | None = None
) -> Leaderboard:
    """Return the leaderboard of the runs. Differences are tested on the queries that decide the order.

    loads: trial key -> the latest load of this configuration.
    """
    tested = not any(one.score.estimate for one in runs.runs)
    choosing = runs.choosing
    p, corrected = runs.against_first(choosing) if tested else (np.full(len(runs.runs), np.nan),) * 2
    rows = _rows(runs, p, corrected, tested, loads or {})
    taken = pick(rows, runs.metric, int(choosing.sum()), runs.unit)
    return Leaderboard(rows, taken, expected, facts(runs, taken.run, expected), () if tested else (ESTIMATED,))


def _rows(
    runs: BoardRuns, p: np.ndarray, corrected: np.ndarray, tested: bool, loads: Mapping[str, LoggedRun]
) -> tuple[Row, ...]:
    logged = [one.run for one in runs.runs]
    loaded = [under_load(loads, run) for run in logged]
    parts: list[dict[str, Any]] = [{} for _ in logged]
    if runs.select_on == "public":
        for name, rows in (("public", runs.public), ("private", ~runs.public)):
            means = runs.means(rows) if rows.any() else np.full(len(logged), np.nan)
            worse = np.sort(-means[~np.isnan(means)])
            ranks = 1 + np.searchsorted(worse, -means)
            for part, mean, rank in zip(parts, means.tolist(), ranks.tolist(), strict=True):
                part |= {name: mean, f"{name}_rank": rank} if mean == mean else {}
    following = iter([{}, *changes([run.params for run in logged if run.has_settings])])
    changed = [next(following) if run.has_settings else {} for run in logged]
    return tuple(
        Row(
            run=place,
            name=one.name,
            value=one.score.value,
            group=None if not tested else "best" if not place else "same" if corrected[place] > ALPHA else "worse",
            difference=runs.gap(place, runs.choosing),
            p=float(p[place]),
            p_holm=float(corrected[place]),
            ms=one.run.metrics.get(MS),
            mb=one.run.metrics.get(INDEX),
            p95_ms=loaded[place][P95],
            qps=loaded[place][QPS],
            asks_model=one.run.params.get("gate") == "llm" or one.run.params.get("query.text") in WRITTEN,
            changed=tuple({"key": key, "above": above, "here": here} for key, (above, here) in changed[place].items()),
            **parts[place],
        )
        for place, one in enumerate(runs.runs)
    )


# ---- The recommended run


def pick(rows: Sequence[Row], metric: str, queries: int, unit: str = "query") -> Pick:
    """Return the recommended run. rows: the best first. queries: how many queries or items it is chosen by."""
    equal = [place for place, one in enumerate(rows) if one.value > rows[0].value - CLOSE]
    place = min(equal, key=lambda place: (rows[place].asks_model, *rows[place].cost, place))
    best, runs = rows[place], len(rows)
    said = [
        Words(
            f"{best.name} has the highest {metric} of {counted(runs, 'run')}, {best.value:.4f}",
            f"실행 {runs:,}개 가운데 {best.name}의 {metric} 값({best.value:.4f})이 가장 높습니다",
        )
    ]
    if len(equal) > 1:
        said.append(_among_equals(best, [rows[other] for other in equal if other != place]))
    tied = [one for one, row in enumerate(rows) if row.tied and one not in equal]
    if rows[0].group:
        said.append(_told_apart(len(tied), queries, unit))
    cheaper = {one: words for one in tied if (words := _cheaper(best, rows[one]))}
    instead = next(iter(cheaper), None)
    if instead is not None:
        said.append(cheaper[instead])
    reason = Words(f"{'; '.join(one.en for one in said)}.", " ".join(f"{one.ko}." for one in said))
    return Pick(place, reason, instead)


def _told_apart(tied: int, queries: int, unit: str) -> Words:
    over, over_ko = counted(queries, unit), f"{KOREAN[unit]} {queries:,}개"
    if not tied:
        return Words(
            f"{over} tell it apart from all runs that score less",
            f"점수가 낮은 실행과는 {over_ko}로 모두 구별됩니다",
        )
    return Words(
        f"{over} cannot tell it apart from {counted(tied, 'run')} that score{'s' * (tied == 1)} less",
        f"점수가 낮은 실행 가운데 {tied:,}개와는 {over_ko}로 구별되지 않습니다",
    )


def _among_equals(one: Row, others: Sequence[Row]) -> Words:
    same = Words(
        f"{counted(len(others), 'other')} score{'s' * (len(others) == 1)} the same",
        f"점수가 같은 실행이 {len(others)}개 더 있는데,",
    )
    if not one.asks_model and all(other.asks_model for other in others):
        why = Words("this one asks no language model", "이 실행은 언어 모델을 쓰지 않습니다")
    elif one.cost[0] < min(other.cost[0] for other in others):
        why = Words("this one is the quickest", "이 실행이 가장 빠릅니다")
    elif one.cost < min(other.cost for other in others):
        why = Words("this one has the smallest index", "이 실행의 색인이 가장 작습니다")
    else:
        why = Words("this one is listed first", "이 실행이 그 가운데 첫 번째입니다")
    return Words(f"{same.en}, and {why.en}", f"{same.ko} {why.ko}")


def _cheaper(best: Row, other: Row) -> Words | None:
    if best.asks_model and not other.asks_model:
        return Words(
            f"of these, {other.name} ({other.value:.4f}) asks no language model",
            f"그 가운데 {other.name}({other.value:.4f}) 실행은 언어 모델을 쓰지 않습니다",
        )
    if best.asks_model == other.asks_model and best.ms and other.ms is not None and other.ms * MUCH <= best.ms:
        ours, its = f"{best.ms:.2g} ms", f"{other.ms:.2g} ms"
        return Words(
            f"of these, {other.name} ({other.value:.4f}) takes {its} per query instead of {ours}",
            f"그 가운데 {other.name}({other.value:.4f}) 실행은 질의당 {ours} 대신 {its}가 걸립니다",
        )
    return None


# ---- Further facts about a run


def facts(runs: BoardRuns, place: int, expected: Expected | None) -> tuple[Words, ...]:
    """Return sentences: what to expect of a run, the score if each query had its best run, and the run's main loss."""
    ceiling = [] if runs.submissions else [_ceiling(runs, place)]  # the measures of text tasks are not means over items
    return (*([expected.words] if expected else []), *ceiling, *_lost(runs, place))


def _ceiling(runs: BoardRuns, place: int) -> Words:
    most = np.nanmax(np.where(np.isnan(runs.values).all(axis=0), 0.0, runs.values), axis=0)
    own = np.nan_to_num(runs.values[place])
    counts = ~np.isnan(runs.values[place])
    better = int((most > own + CLOSE)[counts].sum())
    none = int((most < CLOSE)[counts].sum())
    reach = float(most[counts].mean())
    return Words(
        f"With the best of these runs for each query, {runs.metric} would be {reach:.4f}: on "
        f"{counted(better, 'query')} another run does better than this one, and on {counted(none, 'query')} every run "
        "scores 0.",
        f"질의마다 가장 좋은 실행을 쓴다면 {runs.metric} 값은 {reach:.4f}입니다. 질의 {better:,}개에서는 다른 실행이 "
        f"이 실행보다 낫고, 질의 {none:,}개에서는 모든 실행이 0점입니다.",
    )


def _lost(runs: BoardRuns, place: int) -> list[Words]:
    """Return [a sentence about the most frequent loss]; [] if losses are unknown or there are none.

    A list without a loss has a modified_map@3 of 1, but may have a lower value of another measure, such as precision@k.
    For other measures, the sentence therefore counts the queries with values below 1, not the queries with losses.
    """
    counts = Counter(runs.losses[place][runs.losses[place] > 0].tolist())
    if not counts:
        return []
    code, many = max(counts.items(), key=lambda one: (one[1], -one[0]))
    words, lost, begin, begin_ko, rest = LOST[LOSSES[code]], sum(counts.values()), "It loses", "", Words("", "")
    if runs.metric != LOSING:
        lost, begin = int((runs.values[place] < 1 - CLOSE).sum()), "It scores less than 1"
    elif "out of fold" in runs.runs[place].score.kind:
        begin, begin_ko, rest = "The lists that it wrote lose", "기록된 목록은 ", OF_THE_LISTS
    loses_ko = "점수를 잃으며" if runs.metric == LOSING else "1점에 못 미치며"
    return [
        Words(
            f"{begin} on {counted(lost, 'query')}, most often because {words.en} ({many:,}).{rest.en}",
            f"{begin_ko}질의 {lost:,}개에서 {loses_ko}, 가장 흔한 이유는 {words.ko}입니다({many:,}개).{rest.ko}",
        )
    ]
