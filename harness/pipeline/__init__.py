"""The steps of a retrieval experiment in order; the slow ones run once."""
