"""What scripts/fuzz.py is made of: mutations of files, the formats that the harness reads, and minimising."""
