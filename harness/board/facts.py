"""What else to know of the best of many runs: what to expect, what fusing the runs could reach, where it loses."""

from __future__ import annotations

from collections import Counter

import numpy as np

from harness.board.expected import Expected
from harness.board.recommendation import Words
from harness.board.runs import CLOSE, LOSSES, BoardRuns
from harness.config.text import counted
from harness.evaluation.losses import LOSING, MERGED

LOST = {
    "wrongly_returned": Words("documents are returned where none are needed", "필요 없는 문서를 반환"),
    "wrongly_withheld": Words("the gate withholds documents that are needed", "필요한 문서를 게이트가 막음"),
    "not_found": Words("no relevant document is found", "관련 문서를 찾지 못함"),
    "misranked": Words("relevant documents rank too low", "관련 문서의 순위가 낮음"),
    MERGED: Words("relevant documents are not found or rank too low", "관련 문서를 찾지 못했거나 순위가 낮음"),
}


def facts(runs: BoardRuns, place: int, expected: Expected | None) -> tuple[Words, ...]:
    """Sentences about the run at a place, the recommended one."""
    found = [*([expected.words] if expected else []), _ceiling(runs, place), *_lost(runs, place)]
    return tuple(found)


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
