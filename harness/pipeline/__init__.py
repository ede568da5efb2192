"""The steps of a retrieval experiment in order, and the cache that makes the slow ones run once."""
