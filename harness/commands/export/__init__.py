"""`harness export`, `export record`, `export history`: submissions, the ledger of scores, MLflow models."""
