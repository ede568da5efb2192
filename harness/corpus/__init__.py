"""Text files to documents: files are read as text, cut into chunks, and keep their ids when files are added."""
