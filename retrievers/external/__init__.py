"""Retrievers that run elsewhere: search services, result files, and your functions."""
