"""Language models: a client with structured, cached replies, and their cost."""
