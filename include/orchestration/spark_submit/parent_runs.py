"""The runs above a job, for OpenLineage: that of its task, and that of the DAG.

Their ids are those by which Airflow's OpenLineage provider reports them, made in the same way from the same parts, so that the provider is not
needed here. It would add them itself if `[openlineage] spark_inject_parent_job_info` is set, but only after our hook has its configuration.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import conf

from sluice.settings import LINEAGE_PARENT, LINEAGE_ROOT, Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


@dataclass(frozen=True)
class RunName:
    """A run as events name it. run: its id. name: that of the job of which it is a run."""

    run: str
    namespace: str
    name: str


@dataclass(frozen=True)
class ParentRuns:
    """The run of the task that starts the job, and the one at the top."""

    task: RunName
    dag_run: RunName

    def as_spark_conf(self) -> dict[str, str]:
        """Spark's properties that name them, as OpenLineage's integration for Spark has them."""
        return {
            property_: value
            for properties, one in ((LINEAGE_PARENT, self.task), (LINEAGE_ROOT, self.dag_run))
            for property_, value in zip(properties, (one.run, one.namespace, one.name), strict=True)
        }

    def as_environment(self) -> dict[str, str]:
        """The variables that name them, for a process that has no such properties."""
        return {
            variable: f"{one.namespace}/{one.name}/{one.run}"
            for variable, one in (("OPENLINEAGE_PARENT_ID", self.task), ("OPENLINEAGE_ROOT_PARENT_ID", self.dag_run))
        }


def find_parent_runs(settings: Settings, context: Context) -> ParentRuns | None:
    """The runs above a job of this task; None if the job sends no events."""
    if not settings.sends_lineage or find_spec("openlineage") is None:
        return None
    task, dag_run = context["ti"], context["dag_run"]
    namespace = conf.get("openlineage", "namespace", fallback="") or os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    at = dag_run.logical_date or dag_run.run_after  # Airflow 3 has runs without a logical date
    of_task = _make_run_id(at, namespace, task.dag_id, task.task_id, task.try_number, task.map_index)
    of_dag_run = _make_run_id(at, namespace, dag_run.dag_id, dag_run.clear_number)
    return ParentRuns(
        task=RunName(of_task, namespace, f"{task.dag_id}.{task.task_id}"),
        dag_run=RunName(of_dag_run, namespace, dag_run.dag_id),
    )


def _make_run_id(at: datetime, *parts: object) -> str:
    from openlineage.client.uuid import generate_static_uuid

    return str(generate_static_uuid(at, ".".join(map(str, parts)).encode()))
