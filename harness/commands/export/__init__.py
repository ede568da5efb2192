"""`harness export`: submissions, the ledger of their scores, MLflow models."""
