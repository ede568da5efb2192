"""What `scripts/check_base.py` runs, how, and what it makes of the output."""
