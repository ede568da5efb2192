"""Test sets: questions drafted by a language model from documents, with the evidence that answers them."""
