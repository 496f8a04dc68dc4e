"""What is recorded about a pipeline, read without Spark: deliveries, outcomes, runs, erasures."""
