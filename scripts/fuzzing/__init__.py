"""The formats that scripts/fuzz.py mutates, by name, and how an input is drawn and tried."""
