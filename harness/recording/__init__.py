"""Log an experiment's params, metrics, tags, files and pages, and read logged runs back."""
