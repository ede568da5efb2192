"""Frozen test sets: one version of queries and labels, and its exports."""
