"""Retrievers that run elsewhere: search services, files of results, functions of your own."""
