"""What is changed in landing folders: files cleaned away, records taken out."""
