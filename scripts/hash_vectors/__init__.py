"""A plug-in for benchmarks: an encoder that costs next to nothing."""
