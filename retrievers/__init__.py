"""Retrievers, fusions and rerankers. They know nothing of the harness."""
