"""Turns deliveries into records: files are examined first, then read by Arrow, in this process or by Spark's workers."""
