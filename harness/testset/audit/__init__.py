"""How far to trust a model's labels, measured on a sample that people check."""
