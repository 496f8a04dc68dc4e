"""Chooses the Spark for a job: the Airflow connection names the master, the profile and where the driver runs. Imports no Airflow.

The connection's host and port are the master, and its deploy-mode is that of the provider. Two more fields of its extra are Sluice's own:
`profile`, a file of spark_jobs/conf, and `executor-python`, the path of Python where executors run. The environment (SLUICE_ENV) decides
what the connection leaves out. The variables that a process with Spark gets are chosen here, too.

In cluster mode the cluster's manager starts the driver there. The task then follows it through the lake (`sluice.runs.followed_job`). To add
a manager, add an entry to `CLUSTER_MANAGERS`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.errors import UsageError, nearest_name_hint
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment


@dataclass(frozen=True)
class ClusterManager:
    """begins: the beginning of a master's address. profile: the file of spark_jobs/conf for it.

    driver_variable: the prefix of properties that set a driver's variables; "" if the manager runs no Python driver.
    driver_conf: properties that let spark-submit return once the driver is accepted, and leave further attempts to Airflow.
    tracked_by: the argument that lets the provider's hook ask the manager about a submitted driver, and kill it.
    needs: the field of the connection's extra that this requires; "" if none.
    driver_field: the hook's attribute with the name of the submitted driver.
    """

    begins: str
    profile: str
    driver_variable: str = ""
    driver_conf: Mapping[str, str] = field(default_factory=dict)
    tracked_by: str = ""
    needs: str = ""
    driver_field: str = ""

    def tracking_options(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """The provider's option that lets its hook ask and kill; empty if the connection lacks the field that this requires."""
        return {self.tracked_by: True} if self.tracked_by and (not self.needs or extra.get(self.needs)) else {}


CLUSTER_MANAGERS = (
    ClusterManager("spark://", "standalone"),
    ClusterManager(
        "yarn",
        "yarn",
        driver_variable="spark.yarn.appMasterEnv.",
        driver_conf={"spark.yarn.submit.waitAppCompletion": "false", "spark.yarn.maxAppAttempts": "1"},
        tracked_by="yarn_track_via_rm_api",
        needs="yarn_resourcemanager_webapp_address",
        driver_field="_yarn_application_id",
    ),
    ClusterManager(
        "k8s://",
        "kubernetes",
        driver_variable="spark.kubernetes.driverEnv.",
        driver_conf={"spark.kubernetes.submission.waitAppCompletion": "false"},
        tracked_by="track_driver_via_k8s_api",
        needs="namespace",
        driver_field="_kubernetes_driver_pod",
    ),
)


def find_cluster_manager(master: str) -> ClusterManager:
    """The manager of a cluster's master. An unknown address counts as a standalone master."""
    return next((one for one in CLUSTER_MANAGERS if master.startswith(one.begins)), CLUSTER_MANAGERS[0])


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


_OWN_TO_AIRFLOW = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW", "SLUICE_ALERTS", "SLUICE_AIRFLOW")
"""The prefixes of variables that hold Airflow's keys, connections and addresses. No job needs them, so no job gets them."""


def build_job_environment(settings: Settings) -> dict[str, str]:
    """The variables of this process without Airflow's own, and Sluice's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_TO_AIRFLOW)}
    return kept | build_spark_environment(settings)
