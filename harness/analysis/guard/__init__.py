"""Guard retrieval against changes for the worse."""
