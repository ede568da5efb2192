"""Fusion and reranking: components that work on rankings."""
