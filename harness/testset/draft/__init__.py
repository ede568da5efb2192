"""Queries that a language model drafts from documents, and the filters they pass."""
