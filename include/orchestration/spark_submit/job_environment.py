"""The variables of a job's process, whoever starts it. Imports no Airflow."""

from __future__ import annotations

import os

from sluice.settings import Settings
from sluice.spark_process import build_spark_environment

_OWN_TO_AIRFLOW = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW", "SLUICE_ALERTS", "SLUICE_AIRFLOW")
"""The prefixes of variables that hold Airflow's keys, connections and addresses. No job needs them, so no job gets them."""


def build_job_environment(settings: Settings) -> dict[str, str]:
    """The variables of this process without Airflow's own, and Sluice's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_TO_AIRFLOW)}
    return kept | build_spark_environment(settings)
