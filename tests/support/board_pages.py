"""Boards of made-up runs, whole, as their page shows them."""

from board_lists import made_details
from boards import made_runs

from harness.analysis.board.leaderboard import leaderboard
from harness.analysis.board.matters import matters
from harness.analysis.board.page import Board


def made_board(runs=None, details=None, **parts):
    """parts: further fields of a Board."""
    runs = runs or made_runs()
    return Board(runs, leaderboard(runs), matters(runs), details or made_details(runs), **parts)
