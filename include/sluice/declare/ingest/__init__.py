"""What is ingested: sources of files and of topics, and what can be wrong with one before any data is there."""
