"""What is told of a pipeline without a JVM: lag, positions, freshness, gaps, stale intervals, whether its books add up."""
