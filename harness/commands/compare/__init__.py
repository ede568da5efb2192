"""`harness compare`: which run is better, by how much, and whether the queries can tell."""
