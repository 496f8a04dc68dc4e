"""What Sluice shows in Airflow's UI."""
