"""Shown to whoever gets to know Sluice: runs of a DAG through a real Airflow, and an erasure with its proof. No part of the engine."""
