"""What to try next: one catalogue of proposals with one cost model, for `run`, `init`, `advise` and `sweep=auto`."""
