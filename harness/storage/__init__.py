"""Files written whole, append-only logs, locks, and the cache of slow results."""
