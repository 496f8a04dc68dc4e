"""The topology of docker-compose.yaml as processes: PostgreSQL, Airflow with LocalExecutor, Spark's master and worker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.system.deployment import ROOT, Deployment, postgres_program
from tests.system.running import ended
from tests.waiting import until

from orchestration.line import airflow_line
from orchestration.rest.client import Client
from orchestration.rest.versions import make_airflow_client
from orchestration.server import environment_file
from orchestration.server.home import LOGIN, local_airflow_address
from orchestration.spark_submit.job_code import write_job_code_zip
from sluice.errors import SluiceError
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.spark, pytest.mark.system, pytest.mark.filterwarnings("default")]

STAGES = ("bronze", "silver", "gold", "propagate_deletions", "optimize", "vacuum", "verify")


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployment]:
    if airflow_line() != 3:
        pytest.skip("docker-compose.yaml is of Airflow 3")
    if postgres_program("initdb") is None:
        missing = "PostgreSQL's server is not installed: initdb is neither on PATH nor in /usr/lib/postgresql"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    # Not in pytest's folder: PostgreSQL runs as another user, who may not look into that.
    folder = Path(tempfile.mkdtemp(prefix="sluice-topology-"))
    folder.chmod(0o755)
    file = folder / ".env"
    environment_file.write_environment_file(file)
    secrets = dict(line.split("=", 1) for line in file.read_text().splitlines() if not line.startswith("#"))
    deployment = Deployment(folder, secrets, {"gym.py": ROOT / "dags" / "gym.py"})
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.stop()
        left = deployment.left()
        if not os.environ.get("SLUICE_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.fixture(scope="module")
def airflow(deployed: Deployment) -> Client:
    password = deployed.environment("airflow-init")["AIRFLOW_ADMIN_PASSWORD"]
    return make_airflow_client(local_airflow_address(deployed.ports["8080"]), LOGIN, password)


def sluice(deployed: Deployment, *arguments: str) -> str:
    """What `docker compose exec scheduler sluice ...` does."""
    command = ["sluice", *arguments]
    environment = deployed.environment("scheduler")
    return subprocess.run(
        command, env=environment, cwd=deployed.folder / "elsewhere", capture_output=True, text=True, check=True
    ).stdout


def master(deployed: Deployment) -> dict[str, Any]:
    with urllib.request.urlopen(f"{local_airflow_address(deployed.ports['8081'])}/json/", timeout=10) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def test_init_has_made_pools_and_connection(deployed: Deployment, airflow: Client) -> None:
    pools = {pool["name"]: pool["slots"] for pool in airflow.request("GET", "/pools")["pools"]}
    assert {"sluice_gym": 1, "sluice_italy": 1}.items() <= pools.items()
    connection = airflow.request("GET", "/connections/spark_default")
    assert connection["host"] == f"spark://127.0.0.1:{deployed.ports['7077']}"
    login_file = deployed.folder / "airflow" / "login.json"
    assert login_file.stat().st_mode & 0o777 == 0o600
    login = json.loads(login_file.read_text())
    service = make_airflow_client(airflow.address, login["username"], login["password"])
    assert service.request("GET", "/dags")["total_entries"] >= 0
    wrong = make_airflow_client(airflow.address, LOGIN, login["password"])
    with pytest.raises(SluiceError, match="401"):
        wrong.request("GET", "/dags")


def test_the_job_code_is_imported_from_the_zip_on_driver_and_executor(deployed: Deployment, tmp_path: Path) -> None:
    environment = deployed.environment("scheduler")
    settings = _settings(deployed)
    command = ["spark-submit", "--master", settings.spark_master, "--properties-file", str(settings.spark_properties)]
    command += ["--py-files", str(write_job_code_zip(settings)), str(ROOT / "tests" / "system" / "where_code_is.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    archive = write_job_code_zip(settings).name
    assert f"/{archive}/sluice/" in told["driver"]
    assert told["master"] == settings.spark_master
    assert told["executor_memory"] == "2g"
    assert len(told["executors"]) == 2
    for code, folder, pipeline, *_ in told["executors"]:
        assert f"/{archive}/sluice/" in code
        assert Path(folder).is_relative_to(deployed.folder / "work"), "an executor of the worker"
        assert pipeline == "gym"


def test_the_gym_dag_runs_through_it_by_its_schedule(deployed: Deployment, airflow: Client) -> None:
    before = len(master(deployed)["completedapps"])
    sluice(deployed, "land", "gym", "--days", "1", "--scale", "0.1")
    until(lambda: airflow.has_dag("gym"), what="the DAG gym")
    airflow.pause("gym", False)
    (run,) = until(lambda: airflow.runs("gym"), what="a scheduled run")
    state = ended(airflow, "gym", run["dag_run_id"], 400)
    tasks = airflow.tasks("gym", run["dag_run_id"])
    assert state == "success", {name: task["state"] for name, task in tasks.items()}
    assert run["run_type"] == "scheduled"
    assert {name: tasks[name]["state"] for name in STAGES} == dict.fromkeys(STAGES, "success")

    settings = _settings(deployed)
    table = DeltaTable(PipelineRecords(settings, "gym").table_path("gold", "device_day")).to_pyarrow_table()
    assert table.num_rows > 0
    assert "gym" in sluice(deployed, "status", "gym")

    finished = master(deployed)["completedapps"]
    assert len(finished) == before + len(STAGES)
    assert {app["state"] for app in finished} == {"FINISHED"}
    said = "\n".join(airflow.log("gym", run["dag_run_id"], "bronze", 1))
    assert f"--py-files {write_job_code_zip(settings)}" in said


def _settings(deployed: Deployment) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        # A Spark session that another test of this process started has left its own settings here.
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            patch.delenv(name)
        for name, value in deployed.environment("scheduler").items():
            if name.startswith("SLUICE_"):
                patch.setenv(name, value)
        return Settings.current()
