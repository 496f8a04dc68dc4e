"""What is told of a pipeline without a JVM: lag, freshness, gaps, stale intervals, whether its books add up."""
