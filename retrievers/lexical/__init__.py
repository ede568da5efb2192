"""Tokenizers and BM25."""
