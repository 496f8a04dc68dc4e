"""Demonstrations for newcomers: runs of a DAG through a real Airflow, and an erasure with its proof. Not part of the engine."""
