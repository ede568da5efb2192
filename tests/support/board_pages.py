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
    leaderboard: JsonPart = field(default_factory=JsonPart)
    matters: JsonPart | None = None
    title: str = "Board of made"
    experiment: str = "made"
    sections: Sequence[Section] = ()
    figures: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def details(self):
        return made_details(self.runs)
