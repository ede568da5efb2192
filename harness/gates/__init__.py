"""Decide which queries get documents, and how many: signals, thresholds, and gates that learn from labels."""
