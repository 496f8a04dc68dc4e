"""The state of a pipeline, found without a JVM: lag, freshness, gaps, stale intervals, and whether its books add up."""
