"""`harness export`: write submissions, keep the ledger of their scores, package MLflow models."""
