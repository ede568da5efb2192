"""Sweeps: plan, trials, courses, ending."""
