"""An Airflow of this project's own, on this machine or as docker-compose.yaml says: home, database, processes."""
