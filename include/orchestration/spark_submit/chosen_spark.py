"""Chooses the Spark for a job: the Airflow connection names the master, the profile and where the driver runs. Imports no Airflow.

The connection's host and port are the master, and its deploy-mode is that of the provider. Two more fields of its extra are Sluice's own:
`profile`, a file of spark_jobs/conf, and `executor-python`, the path of Python where executors run. The environment (SLUICE_ENV) decides
what the connection leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestration.spark_submit.cluster_managers import ClusterManager, find_cluster_manager
from sluice.errors import UsageError, nearest_name_hint
from sluice.settings import Settings

PROFILE, EXECUTOR_PYTHON, DEPLOY_MODE = "profile", "executor-python", "deploy-mode"
_CLIENT, _CLUSTER = "client", "cluster"


def choose_spark(settings: Settings, connection: str, master: str, extra: Mapping[str, Any]) -> Settings:
    """The settings with the Spark that a connection names. connection: its id; master: for spark-submit; extra: its extra fields.

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
        raise UsageError(
            f"Connection '{connection}' names the cluster {master}, and the Spark profile 'local' is for one machine. "
            f'Add "{PROFILE}": "{find_cluster_manager(master).profile}" to its extra fields.'
        )
    choose_driver_manager(chosen, connection, extra)
    return chosen


def choose_driver_manager(settings: Settings, connection: str, extra: Mapping[str, Any]) -> ClusterManager | None:
    """The manager that starts the driver on its cluster; None in client mode, where the driver runs beside the task.

    settings: with the connection's master. Raises UsageError for a deploy mode that does not exist, or that Spark refuses.
    """
    mode = extra.get(DEPLOY_MODE) or _CLIENT
    if mode not in (_CLIENT, _CLUSTER):
        hint = nearest_name_hint(str(mode), (_CLIENT, _CLUSTER))
        raise UsageError(f"Connection '{connection}': \"{DEPLOY_MODE}\" is 'client' or 'cluster', not '{mode}'.{hint}")
    if mode == _CLIENT or not settings.on_cluster:
        return None
    manager = find_cluster_manager(settings.spark_master)
    if not manager.driver_variable:
        raise UsageError(
            f"Connection '{connection}': Spark runs no Python application in cluster mode on a standalone cluster. "
            f'Set "{DEPLOY_MODE}": "client" in its extra fields.'
        )
    return manager
