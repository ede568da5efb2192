"""Language models: a client, structured replies, a log of replies, and their cost."""
