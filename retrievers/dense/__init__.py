"""Encoders, embeddings, vector indexes, and the sparse and multi-vector heads of bge-m3."""
