"""Sweeps: the plan, the trials, the loops that run them, and the summary at the end."""
