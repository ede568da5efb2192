"""Test sets: drafted by a language model with evidence, pooled, judged by models and people, and frozen."""
