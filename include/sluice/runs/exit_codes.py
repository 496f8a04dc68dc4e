"""How `python -m sluice.runs.task_without_spark` ends if it has not done its task; Airflow's operator reads it. Loads nothing."""

SPARK_IS_NEEDED = 4
"""The stage must be submitted. Nothing, or a part of it, is done then."""
STOPPED = 5
"""Somebody asked the run to stop: then no job is submitted either."""
