"""What to try next: one catalogue with one cost model, for `run`, `init`, `advise` and `sweep=auto`."""
