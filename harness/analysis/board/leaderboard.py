"""Runs in the order of their scores: what each costs, which the queries cannot tell from the best, which to take.

What else to know of the best of many runs: what to expect, what fusing the runs could reach, where it loses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.analysis.board.expected import Expected
from harness.analysis.board.recommendation import Pick, Row, Words, pick
from harness.analysis.board.runs import CLOSE, LOSSES, BoardRuns
from harness.analysis.board.settings import changes
from harness.config.text import counted
from harness.experiment.timing import MS
from harness.experiment.writing import WRITTEN
from harness.measures.measures import LOSING, MERGED
from harness.statistics.significance import ALPHA
from harness.storage.typed import key_named

LOST = {
    "wrongly_returned": Words("documents are returned where none are needed", "필요 없는 문서를 반환"),
    "wrongly_withheld": Words("the gate withholds documents that are needed", "필요한 문서를 게이트가 막음"),
    "not_found": Words("no relevant document is found", "관련 문서를 찾지 못함"),
    "misranked": Words("relevant documents rank too low", "관련 문서의 순위가 낮음"),
    MERGED: Words("relevant documents are not found or rank too low", "관련 문서를 찾지 못했거나 순위가 낮음"),
}


def facts(runs: BoardRuns, place: int, expected: Expected | None) -> tuple[Words, ...]:
    """Sentences about the run at a place, the recommended one."""
    ceiling = [] if runs.submissions else [_ceiling(runs, place)]  # sums over items have no mean to reach
    return (*([expected.words] if expected else []), *ceiling, *_lost(runs, place))


def _ceiling(runs: BoardRuns, place: int) -> Words:
    """What choosing the best run for each query would reach."""
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
    """What the run loses most of its score to; nothing where that is unknown or nothing is lost.

    How many queries lose is counted by what ranks the runs. Measures that can stay below 1 for a perfect list, such as
    precision@k, lose there too, so that it is said in other words.
    """
    counts = Counter(runs.losses[place][runs.losses[place] > 0].tolist())
    if not counts:
        return []
    code, many = max(counts.items(), key=lambda one: (one[1], -one[0]))
    words, lost, loses, loses_ko = LOST[LOSSES[code]], sum(counts.values()), "loses", "점수를 잃으며"
    if runs.metric != LOSING:
        lost, loses, loses_ko = int((runs.values[place] < 1 - CLOSE).sum()), "scores less than 1", "1점에 못 미치며"
    return [
        Words(
            f"It {loses} on {counted(lost, 'query')}, most often because {words.en} ({many:,}).",
            f"질의 {lost:,}개에서 {loses_ko}, 가장 흔한 까닭은 {words.ko}입니다({many:,}개).",
        )
    ]


INDEX = "index_mb"
ESTIMATED = (
    "The labels come partly from a model: estimates of what people's labels would give stand beside the raw means that "
    "rank the runs, and nothing is tested by query. `harness compare` tests pairs of these runs."
)


@dataclass(frozen=True)
class Leaderboard:
    """rows: the best first. pick: the run to take. expected: of the best on new queries, None if unknown.

    facts: what else to know of the pick, in sentences. notes: what a reader must know besides.
    """

    rows: tuple[Row, ...]
    pick: Pick = field(metadata=key_named("recommended"))
    expected: Expected | None
    facts: tuple[Words, ...]
    notes: tuple[str, ...] = ()
    alpha: float = ALPHA
    json_too = ("pairs",)

    @property
    def pairs(self) -> int:
        """How many pairs p is corrected for."""
        return len(self.rows) - 1


def leaderboard(runs: BoardRuns, expected: Expected | None = None) -> Leaderboard:
    """The leaderboard of the runs. Where the public part ranks them, it alone tells them apart.

    expected: of the best run, on new queries.
    """
    tested = not any(one.score.estimate for one in runs.runs)
    choosing = runs.choosing
    p, corrected = runs.against_first(choosing) if tested else (np.full(len(runs.runs), np.nan),) * 2
    rows = _rows(runs, p, corrected, tested)
    taken = pick(rows, runs.metric, int(choosing.sum()), runs.unit)
    return Leaderboard(rows, taken, expected, facts(runs, taken.run, expected), () if tested else (ESTIMATED,))


def _rows(runs: BoardRuns, p: np.ndarray, corrected: np.ndarray, tested: bool) -> tuple[Row, ...]:
    """Return the row of each run. p, corrected: float64 [R]."""
    logged = [one.run for one in runs.runs]
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
            asks_model=params_ask_model(one.run.params),
            changed=tuple({"key": key, "above": above, "here": here} for key, (above, here) in changed[place].items()),
            **parts[place],
        )
        for place, one in enumerate(runs.runs)
    )


def params_ask_model(params: Mapping[str, str]) -> bool:
    """Whether a run with these params asks a language model about each query."""
    return params.get("gate") == "llm" or params.get("query.text") in WRITTEN
