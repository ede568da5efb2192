"""The settings of an automatic sweep."""

from __future__ import annotations

from harness.commands.sweep.auto.budget import seconds_of


class Auto:
    """Tries what is installed, within a budget of time.

    budget: the time that it may take, such as 90s, 10m or 2h; None: 10m. BadInput for anything else.
    """

    recorded_as = "search/auto"

    def __init__(self, budget: str | None = None) -> None:
        self.seconds = seconds_of("10m" if budget is None else budget)
