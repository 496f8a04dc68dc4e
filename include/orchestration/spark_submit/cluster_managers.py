"""The cluster managers that a connection may name: which profile is made for each, and how each runs a driver in cluster mode. Imports no Airflow.

In cluster mode the manager starts the driver on the cluster. The task then follows it through the lake (`sluice.runs.followed_job`).
A further manager is one more entry of `CLUSTER_MANAGERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ClusterManager:
    """begins: how a master's address begins. profile: the file of spark_jobs/conf that is made for it.

    driver_variable: how a property begins that sets a variable of a driver that it starts; "" if it runs no Python driver.
    driver_conf: properties by which spark-submit returns once the driver is accepted, and nobody but Airflow starts another attempt.
    tracked_by: the argument of the provider's hook with which that asks the manager about a driver it has submitted, and kills it.
    needs: the field of the connection's extra without which it cannot; "" if it needs none.
    driver_field: where the provider's hook keeps the name of the submitted driver.
    """

    begins: str
    profile: str
    driver_variable: str = ""
    driver_conf: Mapping[str, str] = field(default_factory=dict)
    tracked_by: str = ""
    needs: str = ""
    driver_field: str = ""

    def tracking_options(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """The provider's option with which its hook can ask and kill; nothing if the connection lacks what that needs."""
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
    """The manager of a cluster's master. What is none of the others is taken for a standalone master."""
    return next((one for one in CLUSTER_MANAGERS if master.startswith(one.begins)), CLUSTER_MANAGERS[0])
