"""The cluster managers that a connection may name: the profile for each, and how each runs a driver in cluster mode. Imports no Airflow.

In cluster mode the manager starts the driver on the cluster. The task then follows it through the lake (`sluice.runs.followed_job`).
To add a manager, add an entry to `CLUSTER_MANAGERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
