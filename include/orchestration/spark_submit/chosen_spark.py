"""Which Spark a job goes to: the Airflow connection says it, and with it the profile. Imports no Airflow.

The connection's host and port are the master, and its deploy-mode is that of the provider. Two more fields of its extra are Sluice's own:
`profile`, a file of spark_jobs/conf, and `executor-python`, the path of Python where executors run. What it does not say, the
environment says (SLUICE_ENV).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sluice.errors import UsageError
from sluice.settings import Settings

PROFILE, EXECUTOR_PYTHON, DEPLOY_MODE = "profile", "executor-python", "deploy-mode"
_CLUSTERS = {"spark://": "standalone", "yarn": "yarn", "k8s://": "kubernetes"}
"""By how a master's address begins, the profile that is made for it."""
_NO_PYTHON_DRIVER = "Spark runs no Python application in cluster mode on a standalone cluster."
_DRIVER_ELSEWHERE = (
    "The driver runs beside the task, which gives it its settings and secrets, reads its report and its exit code, and stops it; "
    "in cluster mode it would run elsewhere."
)


def choose_spark(settings: Settings, connection: str, master: str, extra: Mapping[str, Any]) -> Settings:
    """The settings with the Spark that a connection names. connection: its id; master: as spark-submit takes it; extra: its extra fields.

    Raises UsageError, before anything is submitted, for a profile that does not exist, for a cluster with the profile of one machine, and
    for a deploy mode that Spark refuses.
    """
    chosen = replace(
        settings,
        spark_master=master,
        spark_profile=str(extra.get(PROFILE) or settings.spark_profile),
        executor_python=str(extra.get(EXECUTOR_PYTHON) or settings.executor_python),
    )
    chosen.require_known_profile(f"connection '{connection}'")
    if not chosen.on_cluster:
        return chosen
    if chosen.spark_profile == "local":
        fitting = next((name for begins, name in _CLUSTERS.items() if master.startswith(begins)), "standalone")
        raise UsageError(
            f"Connection '{connection}' names the cluster {master}, and the Spark profile 'local' is for one machine. "
            f'Add "{PROFILE}": "{fitting}" to its extra fields.'
        )
    if extra.get(DEPLOY_MODE, "client") != "client":
        why = _NO_PYTHON_DRIVER if master.startswith("spark://") else _DRIVER_ELSEWHERE
        raise UsageError(f'Connection \'{connection}\': {why} Set "{DEPLOY_MODE}": "client" in its extra fields.')
    return chosen
