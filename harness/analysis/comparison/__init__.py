"""Comparisons of runs: differences, intervals, paired tests."""
