"""A stage as a task of Airflow: the operator, its hook, and what spark-submit is given."""
