"""The DAG of a pipeline: its stages in order, one spark-submit per task, its trigger form, its deadline, and its announcements to other DAGs.

"Trigger" in Airflow's UI opens the form. It is a JSON schema, which also checks the `conf` of a run by REST or CLI.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, TaskGroup, chain
from airflow.timetables.interval import CronDataIntervalTimetable

from orchestration import alerts
from orchestration.published import PublishOperator
from orchestration.server.home import airflow_pool_name
from orchestration.spark_submit.operator import SluiceSparkSubmitOperator
from sluice.declare import Pipeline
from sluice.declare.pipeline import parse_duration
from sluice.pipeline_stages import (
    PUBLISHED_AFTER,
    VERIFY,
    VERIFY_ALL,
    VERIFY_NEXT,
    Stage,
    StageGroup,
    name_backfill_upkeep,
    tasks_of_pipeline,
)
from sluice.run_modes import INCREMENT, MODES

FIRST_DAY = datetime(2020, 1, 1, tzinfo=UTC)
"""The earliest date of a backfill."""

TASK_DEFAULTS: dict[str, Any] = {
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": True,
    "execution_timeout": timedelta(hours=2),
    "on_failure_callback": alerts.task_failed,
}
# "$" alone would allow a line break after it.
TABLE = "^[a-z][a-z0-9_]{0,99}$(?!\n)"
INSTANT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.]\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?$(?!" + "\n)"
"""Airflow does not check the format `date-time` by itself."""


def medallion_dag(pipeline: Pipeline) -> DAG:
    """The pipeline's DAG, which has the pipeline's name.

    A pool of one slot keeps its runs from writing side by side; `max_active_runs` does not bind backfills.
    """
    with DAG(
        dag_id=pipeline.name,
        description=pipeline.description,
        doc_md=_dag_documentation(pipeline),
        schedule=CronDataIntervalTimetable(pipeline.schedule, timezone="UTC"),
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        params=trigger_form_fields(),
        tags=["sluice", "medallion"],
        default_args={**TASK_DEFAULTS, "owner": pipeline.owner},
        **deadline_alert_options(pipeline),
    ) as dag:
        before: list[SluiceSparkSubmitOperator] = []
        for group, stages in groupby(tasks_of_pipeline(pipeline), key=lambda stage: stage.group):
            with _task_group(group):
                for stage in stages:
                    before.append(_stage_task(pipeline, stage))
            if pipeline.publishes and before[-1].stage == PUBLISHED_AFTER:
                with TaskGroup("publish", prefix_group_id=False, tooltip="Tell other DAGs of new versions") as publish:
                    for table in pipeline.publishes:
                        _publish_task(pipeline, table)
                chain(before[-1], publish)
        chain(*before)
    return dag


def _task_group(group: StageGroup | None) -> AbstractContextManager[Any]:
    return TaskGroup(group.name, prefix_group_id=False, tooltip=group.tooltip) if group else nullcontext()


def _stage_task(pipeline: Pipeline, stage: Stage) -> SluiceSparkSubmitOperator:
    return SluiceSparkSubmitOperator(
        task_id=stage.name,
        task_display_name=stage.title,
        pipeline=pipeline.name,
        stage=stage,
        alert_when=pipeline.alert_when,
        pool=airflow_pool_name(pipeline.name),
        doc_md=stage.documentation,
    )


def _publish_task(pipeline: Pipeline, table: str) -> PublishOperator:
    return PublishOperator(
        task_id=f"publish_{table}",
        task_display_name=f"Publish {table}",
        pipeline=pipeline.name,
        table=table,
        freshness=pipeline.freshness,
        execution_timeout=timedelta(minutes=5),
        trigger_rule="none_failed",  # also if the layers are left to a process that is kept running
        doc_md=f"Announces the new version of `{table}` to the DAGs that wait for it. Skipped if there is none.",
    )


def _dag_documentation(pipeline: Pipeline) -> str:
    stages = "\n".join(f"1. **{stage.name}**: {stage.documentation}" for stage in tasks_of_pipeline(pipeline))
    published = ", ".join(f"`sluice://{pipeline.name}/{table}`" for table in pipeline.publishes) or "nothing"
    return f"""{pipeline.description}

{stages}

A scheduled or a plain manual run takes what is new; with nothing new it changes nothing. Running it again is always safe.

A **backfill** replays its interval: today's code derives every key again that the interval's deliveries touch. To replay a range in
one run, trigger with mode `replay`, the first and the last day. In a backfill of many runs, {name_backfill_upkeep()} wait for its end.

While a process keeps the pipeline running (`sluice run {pipeline.name} --keep-running`), it holds the lease and does all this: these tasks
are skipped, and say so. Only new versions are still published. If the process runs a single stage (`--stage`), nobody does the others:
these tasks fail, and say so. `sluice stop {pipeline.name}` ends it.

Publishes {published}. Each task's XCom holds the report of its job.
"""


def deadline_alert_options(pipeline: Pipeline) -> dict[str, Any]:
    """Keyword arguments of the DAG for its deadline: an alert if a run has not ended so long after it was queued.

    Empty if no deadline is declared, and on Airflow 2, which has no deadlines.
    """
    if pipeline.deadline is None:
        return {}
    try:
        from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback  # type: ignore[attr-defined]  # not in its stub
    except ImportError:
        return {}
    told = {"pipeline": pipeline.name, "deadline": pipeline.deadline}
    # Runs in a worker, not in the triggerer, which the local Airflow does not have.
    callback = SyncCallback(alerts.deadline_missed, kwargs=told)
    return {"deadline": DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, parse_duration(pipeline.deadline), callback)}


def build_list_field(title: str, pattern: str, description: str, most: int = 100) -> Param:
    """A field of a trigger form for texts, one a line, none of them twice. pattern: what each must match. most: how many there may be."""
    return Param(
        [],
        type="array",
        items={"type": "string", "pattern": pattern},
        uniqueItems=True,
        maxItems=most,
        title=title,
        description=description,
    )


def _describe_mode_rules() -> str:
    without_days = " and ".join(mode.name for mode in MODES if not mode.takes_days)
    with_days = " and ".join(mode.name for mode in MODES if mode.takes_days)
    with_tables = " and ".join(mode.name for mode in MODES if mode.needs_tables)
    return f"{without_days} take no days; {with_days} needs both, {with_tables} needs tables."


def trigger_form_fields() -> dict[str, Param]:
    """The fields by name. `RunRequest` checks rules between fields, which the schema of a single field cannot."""
    day: dict[str, Any] = {"type": ["null", "string"], "format": "date"}
    return {
        "mode": Param(
            INCREMENT.name,
            type="string",
            enum=[mode.name for mode in MODES],
            values_display={mode.name: f"{mode.name}: {mode.summary}" for mode in MODES},
            title="Mode",
            description=_describe_mode_rules(),
        ),
        "from_date": Param(None, title="From", description="replay: the first day (UTC).", **day),
        "to_date": Param(None, title="To", description="replay: the last day (UTC), included.", **day),
        "tables": build_list_field(
            "Tables", TABLE, "Only these tables, one a line. A refresh needs at least one; for a replay, none means all."
        ),
        VERIFY.name: Param(
            VERIFY_NEXT,
            type="string",
            enum=[VERIFY_NEXT, VERIFY_ALL],
            title="Verify",
            description="Which tables the last task recomputes from bronze and compares.",
        ),
        "optimize_now": build_list_field(
            "Optimize now", TABLE, "Tables whose files are rewritten, whether or not they need it, one a line."
        ),
        "upkeep_from": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=INSTANT,
            section="Set by backfills",
            title="Upkeep from",
            description=f"In a backfill, {name_backfill_upkeep()} run only where the interval ends then or later.",
        ),
    }
