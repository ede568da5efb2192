"""What else to know of the best of many runs: luck, what fusing the runs could reach, where the pick loses."""

from __future__ import annotations

from collections import Counter

import numpy as np

from harness.board.optimism import Optimism
from harness.board.recommendation import Words
from harness.board.runs import LOSSES, BoardRuns
from harness.config.text import counted
from harness.evaluation.losses import MERGED

CLOSE = 1e-9  # values that differ by less are equal
LOST = {
    "wrongly_returned": Words("documents are returned where none are needed", "필요 없는 문서를 반환"),
    "wrongly_withheld": Words("the gate withholds documents that are needed", "필요한 문서를 게이트가 막음"),
    "not_found": Words("no relevant document is found", "관련 문서를 찾지 못함"),
    "misranked": Words("relevant documents rank too low", "관련 문서의 순위가 낮음"),
    MERGED: Words("relevant documents are not found or rank too low", "관련 문서를 찾지 못했거나 순위가 낮음"),
}


def facts(runs: BoardRuns, place: int, luck: Optimism | None) -> tuple[Words, ...]:
    """Sentences about the run at a place, the recommended one."""
    found = [*([_luck(luck)] if luck else []), _ceiling(runs, place), *_lost(runs, place)]
    return tuple(found)


def _luck(luck: Optimism) -> Words:
    runs, best, unseen = f"{luck.trials:,}", f"{luck.best:.4f}", f"{luck.unseen:.4f}"
    if luck.private:
        return Words(
            f"Best of {runs} runs on the public queries; on the {counted(luck.private, 'private query')}, which had no "
            f"part in the choice, it scores {unseen}.",
            f"public 질의에서 실행 {runs}개 가운데 가장 좋고, 선택에 쓰지 않은 private 질의 {luck.private:,}개에서는 "
            f"{unseen}입니다.",
        )
    if unseen == best:
        return Words(
            f"Best of {runs} runs, and not by luck: chosen on nine tenths of the queries and scored on the rest, the "
            f"best run scores {unseen} as well.",
            f"실행 {runs}개 가운데 가장 좋으며 운이 아닙니다. 질의의 9/10로 고르고 나머지로 채점해도 {unseen}입니다.",
        )
    return Words(
        f"Best of {runs} runs, in part by luck: chosen on nine tenths of the queries and scored on the rest, the best "
        f"run scores {unseen}. Expect this on new queries, not {best}.",
        f"실행 {runs}개 가운데 가장 좋은 데에는 운도 있습니다. 질의의 9/10로 고르고 나머지로 채점하면 {unseen}입니다. "
        f"새 질의에서는 {best} 대신 이 값을 기대하십시오.",
    )


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
    """What the run loses most of its score to; nothing where that is unknown or nothing is lost."""
    counts = Counter(runs.losses[place][runs.losses[place] > 0].tolist())
    if not counts:
        return []
    code, many = max(counts.items(), key=lambda one: (one[1], -one[0]))
    words, lost = LOST[LOSSES[code]], sum(counts.values())
    return [
        Words(
            f"It loses on {counted(lost, 'query')}, most often because {words.en} ({many:,}).",
            f"질의 {lost:,}개에서 점수를 잃으며, 가장 흔한 까닭은 {words.ko}입니다({many:,}개).",
        )
    ]
