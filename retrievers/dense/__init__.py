"""Encoders, embeddings, vector indexes, and bge-m3's sparse and multi-vector heads."""
