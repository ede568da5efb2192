"""`harness reproduce`: runs a logged run again and proves equal predictions."""
