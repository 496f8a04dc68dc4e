"""From deliveries to records: examined first, then read by Arrow, here or by Spark's workers."""
