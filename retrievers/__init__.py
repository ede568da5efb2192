"""Retrievers, encoders, fusions and rerankers. They know nothing of the harness."""
