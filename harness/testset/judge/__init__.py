"""Judgements of pooled documents by a language model."""
