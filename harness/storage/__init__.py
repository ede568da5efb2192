"""What lasts longer than a process: files written whole, logs that only grow, claims, and the cache."""
