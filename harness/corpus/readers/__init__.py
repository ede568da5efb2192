"""Readers: one function for each kind of file, which gives its text, page by page."""
