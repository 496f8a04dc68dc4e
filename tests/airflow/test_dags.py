"""The DAG files: they import, load no Spark, and have the structure and the policy that the pipelines rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import DAG

    from conftest import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

DAG_FILES = sorted((Path(__file__).resolve().parents[2] / "dags").glob("*.py"))
EDGES = {
    ("bronze", "silver"),
    ("silver", "gold"),
    ("gold", "propagate_deletions"),
    ("propagate_deletions", "optimize"),
    ("optimize", "vacuum"),
}


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


def test_stages_and_edges(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        assert {(task.task_id, down) for task in dag.tasks for down in task.downstream_task_ids} == EDGES


def test_a_run_at_a_time_and_no_catching_up(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        assert not dag.catchup
        assert dag.max_active_runs == 1
        assert type(dag.timetable).__name__ == "CronDataIntervalTimetable", "a cron text has empty intervals in Airflow 3"


def test_policy_of_every_task(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        assert dag.doc_md and dag.description
        for task in dag.tasks:
            assert task.pool == f"sluice_{dag.dag_id}", "runs and backfills of a pipeline must share one slot"
            assert task.retries == 2
            assert task.retry_delay == timedelta(minutes=1)
            assert task.execution_timeout is not None
            assert task.owner and task.owner != "airflow"
            assert task.doc_md


def test_gold_announces_what_the_pipeline_publishes(dags: dict[str, DAG]) -> None:
    outlets = {task.task_id: [asset.uri for asset in task.outlets] for task in dags["gym"].tasks}
    assert outlets.pop("gold") == ["sluice://gym/device_day"]
    assert not any(outlets.values())


def test_the_trigger_form_explains_itself(dags: dict[str, DAG]) -> None:
    form = {name: dags["gym"].params.get_param(name) for name in dags["gym"].params}
    assert set(form) == {"mode", "from_date", "to_date", "tables"}
    assert all(param.description and param.schema["title"] for param in form.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [("mode", "everything"), ("from_date", "yesterday"), ("tables", ["--report"]), ("tables", ["a,b"])],
)
def test_the_trigger_form_refuses(dags: dict[str, DAG], name: str, value: Any) -> None:
    from airflow.providers.common.compat.sdk import ParamValidationError

    with pytest.raises(ParamValidationError):
        dags["gym"].params.get_param(name).resolve(value)


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.stem)
def test_parsing_loads_no_spark(checkout: Checkout, path: Path) -> None:
    code = (
        "import json, runpy, sys\n"
        f"runpy.run_path({str(path)!r})\n"
        "print(json.dumps([name for name in ('pyspark', 'delta', 'deltalake') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.stem)
def test_a_dag_file_is_about_a_dozen_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 15
