"""`harness advise`: ideas for the next run, each with what it rests on, a bound and a cost."""
