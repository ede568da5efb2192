"""Components that work on rankings: fusion and reranking."""
