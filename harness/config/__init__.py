"""The keys of each command, the checks of a config, and the components that a config names."""
