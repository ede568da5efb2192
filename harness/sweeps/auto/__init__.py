"""`sweep=auto`: try the catalogue's proposals until the budget ends, and score the choice out of fold."""
