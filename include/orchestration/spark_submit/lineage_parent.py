"""Names the task's run and the DAG's run to a job whose OpenLineage events shall hang below them.

The ids are those by which Airflow's OpenLineage provider reports these runs, made in the same way from the same parts, so that the provider is
not needed here. It would add them itself if `[openlineage] spark_inject_parent_job_info` is set, but only after our hook has its configuration.
"""

from __future__ import annotations

import os
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import conf

from sluice.settings import LINEAGE_PARENT, LINEAGE_ROOT, Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


def name_parent_runs(settings: Settings, context: Context) -> dict[str, str]:
    """What a job's configuration says of the runs above it; nothing if it sends no events."""
    if not settings.sends_lineage or find_spec("openlineage") is None:
        return {}
    task, run = context["ti"], context["dag_run"]
    namespace = conf.get("openlineage", "namespace", fallback="") or os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    at = run.logical_date or run.run_after  # Airflow 3 has runs without a logical date
    above = _make_run_id(at, namespace, task.dag_id, task.task_id, task.try_number, task.map_index)
    top = _make_run_id(at, namespace, run.dag_id, run.clear_number)
    return {
        **dict(zip(LINEAGE_PARENT, (above, namespace, f"{task.dag_id}.{task.task_id}"), strict=True)),
        **dict(zip(LINEAGE_ROOT, (top, namespace, run.dag_id), strict=True)),
    }


def _make_run_id(at: datetime, *parts: object) -> str:
    from openlineage.client.uuid import generate_static_uuid

    return str(generate_static_uuid(at, ".".join(map(str, parts)).encode()))
