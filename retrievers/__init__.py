"""Retrievers, fusions and rerankers, independent of the harness: nothing here imports it."""
