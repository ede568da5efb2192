"""The commands of `scripts/check_base.py`, how they run, and how their output is read."""
