"""`harness doctor`, `doctor cache`, `doctor sync`: checks the set-up, prunes the cache, uploads unsent runs."""
