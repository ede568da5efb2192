"""Retrievers, encoders, fusions and rerankers. From the harness, they import only its errors."""
