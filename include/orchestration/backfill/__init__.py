"""Backfills: through the running Airflow or without it, and what stands in the way of one."""
