"""Run one experiment step by step: plan, ingest, retrieve, fuse, rerank, gate, score."""
