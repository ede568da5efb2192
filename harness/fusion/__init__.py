"""Fusions that learn from labels how to combine component rankings, and the rule that they learn."""
