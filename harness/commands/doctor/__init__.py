"""`harness doctor`: checks the set-up, prunes the cache and what is kept in Milvus, uploads unsent runs."""
