"""Rows of a leaderboard, and which run to take, and why, in one sentence.

The rule: the highest score. Of runs whose scores are equal up to rounding, those that ask no language model, then the
quickest, then the one with the smallest index, then the first. That others are not told apart from it is no reason to
take another: which of them is better is not known, and the highest score is the best guess. But where one of them
spares a language model, or takes at most a tenth of the time, it is named beside the pick.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.config.text import counted
from harness.gates.calibration import CLOSE
from harness.storage.typed import HIDDEN

KOREAN = {"query": "질의", "item": "항목"}
MUCH = 10  # times as quick, from which on a run is named beside the pick


@dataclass(frozen=True)
class Words:
    """The same in English and in Korean."""

    en: str
    ko: str


@dataclass(frozen=True)
class Row:
    """A run on the leaderboard.

    run: its place in `BoardRuns.runs`. name, value: its short name, and what ranks it.
    group: "best", "same" where it is not told apart from the best, "worse"; None where nothing was tested.
    difference: its mean minus that of the best run, over the queries that count in both.
    p, p_holm: of the paired randomisation test against the best run; NaN for the best itself, and where labels come
        partly from a model.
    ms: milliseconds per query; mb: size of its indexes; None if unknown.
    asks_model: whether it asks a language model about each query, which the time leaves out.
    changed: what differs from the run above it: {key, above, here}, None where a run has none.
    public, private: what it scores on these parts and its ranks there among the runs of the board; None unless the
        public part ranks the runs.
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
    asks_model: bool = False
    changed: tuple[Mapping[str, str | None], ...] = ()
    public: float | None = None
    public_rank: int | None = None
    private: float | None = None
    private_rank: int | None = None

    @property
    def tied(self) -> bool:
        """Whether it is the best run or not told apart from it."""
        return self.group in ("best", "same")

    @property
    def cost(self) -> tuple[float, float]:
        return (math.inf if self.ms is None else self.ms, math.inf if self.mb is None else self.mb)


@dataclass(frozen=True)
class Pick:
    """run: the place of the run to take. reason: in one sentence. instead: the place of a much cheaper run that is
    not told apart from it; None if there is none."""

    run: int
    reason: Words
    instead: int | None = None


def pick(rows: Sequence[Row], metric: str, queries: int, unit: str = "query") -> Pick:
    """Choose the run to take. rows: the best first. queries: how many tell the runs apart. unit: what they are."""
    equal = [place for place, one in enumerate(rows) if one.value > rows[0].value - CLOSE]
    place = min(equal, key=lambda place: (rows[place].asks_model, *rows[place].cost, place))
    best, runs = rows[place], len(rows)
    said = [
        Words(
            f"{best.name} has the highest {metric} of {counted(runs, 'run')}, {best.value:.4f}",
            f"실행 {runs:,}개 가운데 {best.name}의 {metric} 값이 {best.value:.4f}(으)로 가장 높습니다",
        )
    ]
    if len(equal) > 1:
        said.append(_among_equals(rows, equal, place))
    tied = [one for one, row in enumerate(rows) if row.tied and one not in equal]
    instead = _cheaper(rows, place, tied)
    if rows[0].group:
        said.append(_told_apart(len(tied), queries, unit))
    if instead is not None:
        said.append(_beside(best, rows[instead]))
    en, ko = ("; ".join(parts) for parts in zip(*((one.en, one.ko) for one in said), strict=True))
    return Pick(place, Words(f"{en}.", f"{ko}."), instead)


def _told_apart(tied: int, queries: int, unit: str) -> Words:
    over, over_ko = counted(queries, unit), f"{KOREAN[unit]} {queries:,}개"
    if not tied:
        return Words(
            f"{over} tell it apart from all that score less",
            f"점수가 낮은 실행과는 {over_ko}로 모두 구별됩니다",
        )
    return Words(
        f"{over} cannot tell it apart from {counted(tied, 'run')} that score{'s' * (tied == 1)} less",
        f"점수가 낮은 실행 가운데 {tied:,}개와는 {over_ko}로 구별되지 않습니다",
    )


def _among_equals(rows: Sequence[Row], equal: Sequence[int], place: int) -> Words:
    """Why this one of runs with the same score."""
    one, others = rows[place], [rows[other] for other in equal if other != place]
    same = Words(
        f"{counted(len(others), 'other')} score{'s' * (len(others) == 1)} the same",
        f"점수가 같은 실행이 {len(others)}개 더 있고",
    )
    if not one.asks_model and all(other.asks_model for other in others):
        why = Words("this one asks no language model", "이 실행은 언어 모델을 쓰지 않습니다")
    elif one.cost[0] < min(other.cost[0] for other in others):
        why = Words("this one is the quickest", "이 실행이 가장 빠릅니다")
    elif one.cost < min(other.cost for other in others):
        why = Words("this one has the smallest index", "이 실행의 색인이 가장 작습니다")
    else:
        why = Words("this one stands first", "이 실행이 그 가운데 첫 번째입니다")
    return Words(f"{same.en}, and {why.en}", f"{same.ko} {why.ko}")


def _cheaper(rows: Sequence[Row], place: int, tied: Sequence[int]) -> int | None:
    """The best of those not told apart that spares a language model or takes at most 1 / MUCH of the time."""
    best = rows[place]
    for one in tied:
        other = rows[one]
        if best.asks_model and not other.asks_model:
            return one
        if best.asks_model == other.asks_model and best.ms and other.ms is not None and other.ms * MUCH <= best.ms:
            return one
    return None


def _beside(best: Row, other: Row) -> Words:
    """What a much cheaper run spares that is not told apart from the best."""
    if best.asks_model and not other.asks_model:
        return Words(
            f"of these, {other.name} ({other.value:.4f}) asks no language model",
            f"그 가운데 {other.name}({other.value:.4f})은(는) 언어 모델을 쓰지 않습니다",
        )
    return Words(
        f"of these, {other.name} ({other.value:.4f}) takes {_ms(other)} per query instead of {_ms(best)}",
        f"그 가운데 {other.name}({other.value:.4f})은(는) 질의당 {_ms(best)} 대신 {_ms(other)}가 걸립니다",
    )


def _ms(one: Row) -> str:
    return f"{one.ms:.2g} ms"
