"""Airflow glue: the medallion DAG, the spark-submit operator, a local Airflow. Imports no Airflow."""
