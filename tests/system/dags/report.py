"""A DAG of somebody else that uses a table of the gym: it waits for data, and does nothing where the version is one it has used."""

from datetime import UTC, datetime

from airflow.providers.common.compat.sdk import DAG, task

from orchestration.published import new_version, published


@task
def write_the_report() -> None:
    """Stands for the work."""


with DAG("report", schedule=[published("gym", "device_day")], start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    new_version("gym", "device_day") >> write_the_report()
