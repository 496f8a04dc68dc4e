"""The deadline of a pipeline's runs. Only Airflow 3 has such alerts."""

from __future__ import annotations

from typing import Any

from orchestration import alerts
from sluice.declare import Pipeline
from sluice.declare.pipeline import parse_duration


def deadline_alert_options(pipeline: Pipeline) -> dict[str, Any]:
    """What the DAG is to be told, as keywords: an alert when a run has not ended so long after it was queued.

    Empty where none is declared, and on Airflow 2, which knows none.
    """
    if pipeline.deadline is None:
        return {}
    try:
        from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback  # type: ignore[attr-defined]  # not in its stub
    except ImportError:
        return {}
    told = {"pipeline": pipeline.name, "deadline": pipeline.deadline}
    # In a worker, not in the triggerer: the local Airflow has none.
    callback = SyncCallback(alerts.deadline_missed, kwargs=told)
    return {"deadline": DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, parse_duration(pipeline.deadline), callback)}
