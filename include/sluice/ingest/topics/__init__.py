"""Kafka as deliveries: asks the cluster, and computes ranges of offsets."""
