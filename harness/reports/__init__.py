"""Terminal tables, HTML pages and figures. No score is computed here."""
