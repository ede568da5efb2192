"""Pools of documents to judge, and whether labels from a pool can score other runs."""
