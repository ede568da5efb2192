"""What people look at: terminal tables, HTML pages, figures. Nothing here decides a number."""
