"""`harness sweep`: many runs over a grid or a search; resumable, and each retrieval computed once."""
