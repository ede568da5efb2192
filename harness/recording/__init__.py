"""What an experiment leaves with a tracker: params, metrics, tags, files and pages; and how it is read back."""
