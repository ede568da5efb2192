"""Params, metrics, tags, files and pages that an experiment logs, and logged runs read back."""
