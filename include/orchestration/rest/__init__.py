"""Airflow's REST API: one client, and the versions of the API behind it."""
