"""What a run is configured to do: which keys exist, what is refused, which components a config names."""
