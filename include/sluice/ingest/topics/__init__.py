"""Kafka as deliveries: the cluster asked, and ranges of offsets reckoned."""
