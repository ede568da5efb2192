"""Files that users bring and files that the harness writes: documents, queries, labels, predictions."""
