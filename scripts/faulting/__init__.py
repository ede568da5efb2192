"""What scripts/faults.py disturbs, how, and the servers and clusters that it needs."""
