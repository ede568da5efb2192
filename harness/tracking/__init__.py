"""What a run is called, what it leaves behind, and how it is logged to MLflow."""
