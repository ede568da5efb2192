"""One module or folder per command. No command imports another."""
