"""What is stored and shown of people: treatments, masks, and the least size of a group."""
