"""Pages of made-up boards, as far as they need no tracker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from board_lists import made_details
from boards import made_runs

from harness.board.runs import BoardRuns
from harness.reports.sections import Section


@dataclass(frozen=True)
class JsonPart:
    """A part of a board that is its JSON document."""

    content: Mapping = field(default_factory=dict)

    def to_json(self):
        return {**self.content}


@dataclass(frozen=True, eq=False)
class MadeBoard:
    runs: BoardRuns = field(default_factory=made_runs)
    matters: JsonPart | None = None
    experiment: str = "made"
    sections: Sequence[Section] = ()
    figures: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def leaderboard(self):
        best = self.runs.runs[0].score
        rows = [
            {
                "run": place,
                "group": "best" if not place else "same" if one.score.high > best.value else "worse",
                "p_holm": 1.0 if one.score.high > best.value else 0.001,
                "ms": 1.0 + place,
                "mb": None,
            }
            for place, one in enumerate(self.runs.runs)
        ]
        reason = {
            "en": "It is the cheapest of those that are not told apart from the best.",
            "ko": "가장 좋은 실행과 구별되지 않는 실행 가운데 가장 쌉니다.",
        }
        return JsonPart({"rows": rows, "recommended": {"run": 1, "reason": reason}})

    @property
    def details(self):
        return made_details(self.runs)
