"""What is declared as SQL text, transforms and schemas, taken apart without Spark."""
