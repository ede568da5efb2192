"""One module or folder for each command. No command imports another."""
