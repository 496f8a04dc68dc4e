"""A stage as a task of Airflow: the operator, its hook, and the arguments of spark-submit."""
