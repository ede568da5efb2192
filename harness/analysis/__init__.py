"""Analyses of logged runs: ranking, board, comparison, proposals."""
