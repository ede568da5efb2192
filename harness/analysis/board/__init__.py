"""The board: every run of an experiment on one page."""
