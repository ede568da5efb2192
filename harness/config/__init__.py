"""Which keys a command has, what is refused, and which components a config names."""
