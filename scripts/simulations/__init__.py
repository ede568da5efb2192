"""Simulations that check what intervals, tests and importances promise."""
