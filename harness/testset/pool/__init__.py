"""Pools of documents to judge, and whether labels from a pool serve other runs."""
