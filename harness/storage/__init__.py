"""What outlives a process: files that are written whole, append-only logs, locks, and the cache of slow results."""
