"""`harness doctor`: check the set-up, prune the cache, upload unsent runs."""
