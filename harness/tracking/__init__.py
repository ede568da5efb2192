"""Log runs to MLflow, CSV or Weights & Biases, read them back, and save them while a server is down."""
