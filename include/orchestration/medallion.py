"""The DAG of a pipeline: its six stages in order, one spark-submit a task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, Param, chain
from airflow.timetables.interval import CronDataIntervalTimetable

from orchestration.home import pool_name
from orchestration.spark_submit import SluiceSparkSubmitOperator
from sluice.declare import Pipeline

STAGES = {
    "bronze": "Finds new deliveries in the landing folder and appends all their records to bronze.",
    "silver": "Brings the silver tables up to date: typed, valid, one row a key. The rest is quarantined.",
    "gold": "Recomputes what changes touch of the gold tables, and merges the differences.",
    "propagate_deletions": "Takes the rows of erased people out of all layers.",
    "optimize": "Rewrites small files into large ones and lays them out by the declared columns.",
    "vacuum": "Removes data files that no table has needed for the pipeline's retention time.",
}
"""The stages in their order, with what each does."""

FIRST_DAY = datetime(2020, 1, 1, tzinfo=UTC)
"""Backfills may go back to here."""

TASK_DEFAULTS: dict[str, Any] = {
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": True,
    "execution_timeout": timedelta(hours=2),
}


def medallion_dag(pipeline: Pipeline) -> DAG:
    """The pipeline's DAG, called like the pipeline.

    A pool of one slot keeps its runs from writing side by side; `max_active_runs` does not bind backfills.
    """
    with DAG(
        dag_id=pipeline.name,
        description=pipeline.description,
        doc_md=_documentation(pipeline),
        schedule=CronDataIntervalTimetable(pipeline.schedule, timezone="UTC"),
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        params=_trigger_form(),
        tags=["sluice", "medallion"],
        default_args={**TASK_DEFAULTS, "owner": pipeline.owner, "pool": pool_name(pipeline.name)},
    ) as dag:
        published = [Asset(f"sluice://{pipeline.name}/{table}") for table in pipeline.publishes]
        chain(
            *(
                SluiceSparkSubmitOperator(
                    task_id=stage,
                    pipeline=pipeline.name,
                    stage=stage,
                    doc_md=text,
                    outlets=published if stage == "gold" else [],
                )
                for stage, text in STAGES.items()
            )
        )
    return dag


def _trigger_form() -> dict[str, Param]:
    day: dict[str, Any] = {"type": ["null", "string"], "format": "date"}
    return {
        "mode": Param(
            "increment",
            type="string",
            enum=["increment", "replay", "refresh"],
            title="Mode",
            description="increment: what is new. refresh: the tables below from scratch, with all that read them. "
            "replay: the days below again; the jobs refuse it so far.",
        ),
        "from_date": Param(None, title="From", description="replay: first day, inclusive (UTC).", **day),
        "to_date": Param(None, title="To", description="replay: last day, exclusive (UTC).", **day),
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "pattern": "^[a-z][a-z0-9_]*$"},
            title="Tables",
            description="Only these tables, one a line. Empty: all. A refresh needs at least one.",
        ),
    }


def _documentation(pipeline: Pipeline) -> str:
    stages = "\n".join(f"1. **{stage}**: {text}" for stage, text in STAGES.items())
    return f"""{pipeline.description}

{stages}

A scheduled or a plain manual run takes what is new; with nothing new it changes nothing.
Running it again is always safe. A backfill asks for a replay of its interval, which the jobs refuse so far.
Each task's XCom holds the report of its job.
"""
