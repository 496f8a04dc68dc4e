"""The DAG files: they import, load no Spark, and have the structure and the policy that the pipelines rely on."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import DAG
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

DAG_FILES = sorted((Path(__file__).resolve().parents[2] / "dags").glob("*.py"))
EDGES = {
    ("bronze", "silver"),
    ("silver", "gold"),
    ("gold", "propagate_deletions"),
    ("propagate_deletions", "optimize"),
    ("optimize", "vacuum"),
    ("vacuum", "verify"),
}
"""Of the tasks that run a job."""


@pytest.fixture(scope="session")
def dags(checkout: Checkout) -> dict[str, DAG]:
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 2
        from airflow.models.dagbag import DagBag

    bag = DagBag(str(checkout.settings.root / "dags"))
    assert bag.import_errors == {}
    return {name: dag for name, dag in bag.dags.items() if "medallion" in dag.tags}


def test_every_pipeline_has_its_dag(dags: dict[str, DAG]) -> None:
    pipelines = Path(__file__).resolve().parents[2] / "include" / "pipelines"
    assert set(dags) == {path.parent.name for path in pipelines.glob("*/pipeline.py")}


def published(dag: DAG) -> set[str]:
    return {task.task_id for task in dag.tasks if task.task_id.startswith("publish_")}


def test_stages_and_edges(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        edges = {(task.task_id, down) for task in dag.tasks for down in task.downstream_task_ids}
        assert edges == EDGES | {("propagate_deletions", task) for task in published(dag)}, (
            "nothing is announced before deletions"
        )


def test_tasks_are_grouped_and_keep_their_names(dags: dict[str, DAG]) -> None:
    groups = {group: set(found.children) for group, found in dags["gym"].task_group.get_task_group_dict().items() if group}
    assert groups == {
        "layers": {"bronze", "silver", "gold"},
        "publish": {"publish_device_day", "publish_workout_summary", "publish_gym_stats"},
        "upkeep": {"optimize", "vacuum"},
    }


def test_stages_together_are_one_task_with_all_that_follows(checkout: Checkout) -> None:
    from orchestration.medallion import medallion_dag
    from pipelines.gym.pipeline import PIPELINE

    dag = medallion_dag(replace(PIPELINE, stages="together"))
    edges = {(task.task_id, down) for task in dag.tasks for down in task.downstream_task_ids}
    above = {edge for edge in EDGES if "silver" not in edge}
    expected = {("layers", down) if upper == "gold" else (upper, down) for upper, down in above}
    assert edges == expected | {("propagate_deletions", task) for task in published(dag)}
    assert {group for group in dag.task_group.get_task_group_dict() if group} == {"publish", "upkeep"}


def test_a_run_at_a_time_and_no_catching_up(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        assert not dag.catchup
        assert dag.max_active_runs == 1
        assert type(dag.timetable).__name__ == "CronDataIntervalTimetable", "a cron text has empty intervals in Airflow 3"


def test_policy_of_every_task(dags: dict[str, DAG]) -> None:
    from orchestration import alerts

    for dag in dags.values():
        assert dag.doc_md and dag.description
        for task in dag.tasks:
            writes = task.task_id not in published(dag)
            assert (task.pool == f"sluice_{dag.dag_id}") == writes, "runs and backfills of a pipeline must share one slot"
            assert task.retries == 2
            assert task.retry_delay == timedelta(minutes=1)
            assert task.execution_timeout is not None
            assert task.owner and task.owner != "airflow"
            assert task.doc_md
            assert task.task_display_name != task.task_id
            callbacks = task.on_failure_callback
            assert alerts.task_failed in (callbacks if isinstance(callbacks, list | tuple) else [callbacks])


def test_what_a_pipeline_publishes_has_a_task_that_announces_it(dags: dict[str, DAG]) -> None:
    outlets = {task.task_id: [asset.uri for asset in task.outlets] for task in dags["gym"].tasks}
    for table in ("device_day", "workout_summary", "gym_stats"):
        assert outlets.pop(f"publish_{table}") == [f"sluice://gym/{table}"]
    assert not any(outlets.values())


@pytest.mark.parametrize("most", [6, 7])
def test_thresholds_reach_the_tasks_and_the_deadline_the_dag(checkout: Checkout, most: int) -> None:
    from orchestration.airflow_line import airflow_line
    from orchestration.medallion import medallion_dag
    from pipelines.gym.pipeline import PIPELINE

    declared = replace(PIPELINE, deadline="6 hours", freshness="2 days", alert_when={"heart_rate.plausible_heart_rate": most})
    dag = medallion_dag(declared)
    assert dag.get_task("silver").alert_when == {"heart_rate.plausible_heart_rate": most}
    assert dag.get_task("publish_device_day").freshness == "2 days"
    if airflow_line() == 3:
        (alert,) = dag.deadline if isinstance(dag.deadline, list) else [dag.deadline]
        assert alert.interval == timedelta(hours=6)
        assert alert.callback.path == "orchestration.alerts.deadline_missed"


def test_the_trigger_form_explains_itself(dags: dict[str, DAG]) -> None:
    form = {name: dags["gym"].params.get_param(name) for name in dags["gym"].params}
    assert set(form) == {"mode", "from_date", "to_date", "tables", "verify", "optimize_now", "upkeep_from"}
    assert all(param.description and param.schema["title"] for param in form.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "everything"),
        ("mode", None),
        ("verify", "some tables"),
        ("from_date", "yesterday"),
        ("from_date", "2026-02-30"),
        ("to_date", "2026-01-01' OR '1'='1"),
        ("to_date", "2026-01-01\n"),
        ("tables", "heart_rate"),
        ("tables", ["--report"]),
        ("tables", ["a,b"]),
        ("tables", ["../x"]),
        ("tables", ["a; DROP TABLE heart_rate"]),
        ("tables", ["heart_rate\n"]),
        ("tables", ["heart_rate", "heart_rate"]),
        ("optimize_now", "heart_rate"),
        ("optimize_now", ["../x"]),
        ("optimize_now", ["heart_rate", "heart_rate"]),
        ("upkeep_from", "soon"),
        ("upkeep_from", "2026-01-01T00:00:00Z\n"),
    ],
)
def test_the_trigger_form_refuses(dags: dict[str, DAG], name: str, value: Any) -> None:
    from airflow.providers.common.compat.sdk import ParamValidationError

    with pytest.raises(ParamValidationError):
        dags["gym"].params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "refresh"),
        ("from_date", "2026-02-28"),
        ("tables", ["heart_rate", "device_day"]),
        ("optimize_now", ["heart_rate", "device_day"]),
        ("upkeep_from", "2026-01-01T02:00:00+00:00"),
        ("upkeep_from", "2026-01-01T02:00:00Z"),
        ("upkeep_from", None),
    ],
)
def test_the_trigger_form_takes(dags: dict[str, DAG], name: str, value: Any) -> None:
    assert dags["gym"].params.get_param(name).resolve(value) == value


def test_parsing_loads_no_spark(checkout: Checkout) -> None:
    """One process parses all files, one after the other, and says what is loaded after each."""
    code = (
        "import json, runpy, sys\n"
        "loaded = {}\n"
        "for path in sys.argv[1:]:\n"
        "    runpy.run_path(path)\n"
        "    loaded[path] = [name for name in ('pyspark', 'delta', 'deltalake') if name in sys.modules]\n"
        "print(json.dumps(loaded))"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, DAG_FILES)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {str(path): [] for path in DAG_FILES}


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.stem)
def test_a_dag_file_is_about_a_dozen_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 15


def test_a_pipeline_of_other_layers_has_a_task_for_each_of_them_and_for_no_other(dags: dict[str, DAG]) -> None:
    from orchestration.medallion import medallion_dag
    from sluice.declare import Pipeline

    made_with = dags["gym"].get_task("bronze").owner
    for name, layers in (("two", ("bronze", "silver")), ("four", ("raw", "silver", "gold", "for_reports"))):
        modules = tuple(f"pipelines.{name}.{layer}" for layer in layers)
        dag = medallion_dag(Pipeline(name=name, description="Other layers.", owner=made_with, layers=modules))
        assert {task.task_id for task in dag.tasks} == {*layers, "propagate_deletions", "optimize", "vacuum", "verify"}
        above = {task: dag.get_task(task).upstream_task_ids for task in layers[1:]}
        assert above == {upper: {lower} for lower, upper in itertools.pairwise(layers)}
        assert dag.get_task("propagate_deletions").upstream_task_ids == {layers[-1]}
        assert "**gold**" not in str(dag.doc_md) if name == "two" else "**for_reports**" in str(dag.doc_md)
