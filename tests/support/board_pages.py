"""Boards of made-up runs, whole, as their page shows them."""

from board_lists import made_details
from boards import made_runs

from harness.runs.board.leaderboard import leaderboard
from harness.runs.board.matters import matters
from harness.runs.board.page import Board


def made_board(runs=None, details=None, **parts):
    """parts: further fields of a Board."""
    runs = runs or made_runs()
    return Board(runs, leaderboard(runs), matters(runs), details or made_details(runs), **parts)
