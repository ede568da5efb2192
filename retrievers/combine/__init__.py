"""What works on rankings alone: fusion and reranking."""
