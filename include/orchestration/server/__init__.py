"""An Airflow of this project's own, on this machine or in the deployment of docker-compose.yaml: home, database, processes."""
