"""`harness sweep`: a grid or a search over runs, resumable, each retrieval computed once."""
