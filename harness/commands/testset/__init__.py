"""`harness testset`: test sets for files without labels."""
