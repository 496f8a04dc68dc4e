"""What is stored and shown about people: treatments, which change stored values, and masks, which change shown ones."""
