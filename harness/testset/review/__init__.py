"""Judging pairs on a local page: what a reviewer sees, what has been judged, and the server between them."""
