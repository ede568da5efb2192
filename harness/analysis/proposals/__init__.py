"""What to try next: a catalogue and a cost model, shared by `run`, `init`, `advise` and `sweep=auto`."""
