"""`harness compare`: which run is better, by how much, and how sure the queries are."""
