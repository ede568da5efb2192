"""Retrievers, encoders, fusions and rerankers. They import only the errors of the harness."""
