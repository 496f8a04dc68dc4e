"""What is stored and shown about people: treatments, masks, and the smallest group that is published."""
