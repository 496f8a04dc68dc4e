"""The name of the DAG `erasure`, and how an id of a request looks. Without Airflow: its API server asks here before Airflow does."""

from __future__ import annotations

DAG_ID = "erasure"

REQUEST = "^[0-9a-f]{12}$(?!\n)"
"""How an id looks. `$` alone would let a line break follow."""
