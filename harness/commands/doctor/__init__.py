"""`harness doctor`: checks the set-up, prunes the cache, uploads unsent runs."""
