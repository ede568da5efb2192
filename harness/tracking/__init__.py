"""How runs are logged and read: MLflow, CSV, Weights & Biases, and the outbox for a server that is down."""
