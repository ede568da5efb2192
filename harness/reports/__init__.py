"""Terminal tables, HTML pages and figures. This package decides no number."""
