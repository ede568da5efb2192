"""`harness testset`: build test sets for documents without labels."""
