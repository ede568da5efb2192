"""Measures of ranked lists: judged lists, their scores query by query, and the objective of a run."""
