"""`sweep=auto`: try the proposals of the catalogue until the budget ends, and score the choice out of fold."""
