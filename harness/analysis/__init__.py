"""What is said about logged runs: ranking, board, comparison, proposals."""
