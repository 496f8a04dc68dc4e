"""What was set aside and is judged again, and what a killed attempt of that left behind."""
