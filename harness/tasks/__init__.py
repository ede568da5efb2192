"""Text tasks: scoring files of free-text answers and of corrected sentences."""
