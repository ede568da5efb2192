"""Which queries get documents, and how many: signals, thresholds, gates that learn from labels."""
