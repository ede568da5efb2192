"""Make documents from text files: find and read the files, cut their texts into chunks, find near-duplicates."""
