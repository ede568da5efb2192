"""`sweep=auto`: tries what is installed within a budget of time, and scores the choice on queries it has not seen."""
