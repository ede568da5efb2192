"""Language models: one client with structured replies, which are paid for once, and what they cost."""
