"""Measures of ranked lists: judged lists, their scores query by query, and what a run is ranked by."""
