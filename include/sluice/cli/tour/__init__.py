"""`sluice tour`: runs of a DAG through a real Airflow, and what they must have made."""
