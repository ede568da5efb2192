"""How far a model's labels can be trusted, by a sample that people check."""
