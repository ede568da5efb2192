"""`harness reproduce`: repeats a logged run and proves equal predictions."""
