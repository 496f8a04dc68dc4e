"""The topology of docker-compose.yaml as processes: PostgreSQL, Airflow with LocalExecutor, Spark's master and worker.

`make test-system` runs it as docker-compose.store.yaml has it, on an S3 server and with one task for all layers. With the data on a
volume, and a task for each layer, it is one of the slow tests: that drivers, executors and Airflow find each other is shown before.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.compose_files import ON_STORE, ON_VOLUME
from tests.store_actions import EVERYDAY, OF_OWNER, actions_in_log
from tests.system.deployment import ROOT, Deployment, postgres_program
from tests.system.running import ended, list_paths_below
from tests.waiting import until, wait_past_schedule

from orchestration.airflow_line import airflow_line
from orchestration.rest.client import Client
from orchestration.rest.versions import make_airflow_client
from orchestration.server import environment_file
from orchestration.server.home import LOGIN, local_airflow_address
from orchestration.spark_submit.job_code import write_job_code_zip
from sluice.errors import SluiceError
from sluice.locations import is_on_disk, locate
from sluice.open_tables import open_delta_table
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings
from sluice.spark_process import find_spark_properties_file

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.system, pytest.mark.filterwarnings("default")]


@dataclass(frozen=True)
class Topology:
    """files: of Compose. dag: the file of the DAG gym. layers: the tasks that bring its layers up to date. declared: what the
    deployment's gym says, by what this checkout's says."""

    files: tuple[str, ...]
    dag: Path
    layers: tuple[str, ...]
    declared: tuple[str, str] = ("", "")

    @property
    def stages(self) -> tuple[str, ...]:
        """The tasks that may be Spark jobs: upkeep is one only where it has something to do for Spark."""
        return (*self.computing, "propagate_deletions", "optimize", "vacuum")

    @property
    def computing(self) -> tuple[str, ...]:
        """The tasks that are Spark jobs wherever files were delivered."""
        return (*self.layers, "verify")


SMALL = """
spark.sql.shuffle.partitions                              2
spark.sql.sources.parallelPartitionDiscovery.parallelism  2
"""
"""Added to the deployment's profile: a worker of two cores has no use for tasks of eight partitions, whose state is on the store, too."""
OWNER = '    owner="sluice",\n'
TOGETHER = Topology(
    ON_STORE, ROOT / "tests" / "system" / "dags" / "gym_together.py", ("layers",), (OWNER, f'{OWNER}    stages="together",\n')
)
APART = Topology(ON_VOLUME, ROOT / "dags" / "gym.py", ("bronze", "silver", "gold"))


@pytest.fixture(
    scope="module",
    params=[pytest.param(TOGETHER, id="on-store"), pytest.param(APART, id="on-volume", marks=pytest.mark.slow)],
)
def topology(request: pytest.FixtureRequest) -> Topology:
    chosen: Topology = request.param
    return chosen


@pytest.fixture(scope="module")
def deployed(topology: Topology) -> Iterator[Deployment]:
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
    deployment = Deployment(folder, topology.files, secrets, {"gym.py": topology.dag})
    pipeline = deployment.root / "include" / "pipelines" / "gym" / "pipeline.py"
    text, (said, instead) = pipeline.read_text(), topology.declared
    assert said in text
    pipeline.write_text(text.replace(said, instead) if said else text)
    with (deployment.root / "spark_jobs" / "conf" / "standalone.conf").open("a") as profile:
        profile.write(SMALL)
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
    with urllib.request.urlopen(f"{local_airflow_address(deployed.ports['8081'])}/json/", timeout=120) as answer:
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


def test_the_job_code_is_imported_from_the_zip_on_driver_and_executor(
    topology: Topology, deployed: Deployment, tmp_path: Path
) -> None:
    if topology is TOGETHER:
        pytest.skip("of a cluster beside a store tests/system/test_cluster.py shows it")
    environment = deployed.environment("scheduler")
    settings = _settings(deployed)
    command = ["spark-submit", "--master", settings.spark_master, "--properties-file", str(find_spark_properties_file(settings))]
    command += ["--py-files", str(write_job_code_zip(settings)), str(ROOT / "tests" / "system" / "where_code_is.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
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


def test_the_gym_dag_runs_through_it_by_its_schedule(topology: Topology, deployed: Deployment, airflow: Client) -> None:
    before = len(master(deployed)["completedapps"])
    sluice(deployed, "land", "gym", "--days", "1", "--scale", "0.1")
    until(lambda: airflow.has_dag("gym"), what="the DAG gym")
    wait_past_schedule()
    airflow.pause("gym", False)
    (run,) = until(lambda: airflow.runs("gym"), what="a scheduled run")
    state = ended(airflow, "gym", run["dag_run_id"], 400)
    tasks = airflow.tasks("gym", run["dag_run_id"])
    assert state == "success", {name: task["state"] for name, task in tasks.items()}
    assert run["run_type"] == "scheduled"
    assert {name: tasks[name]["state"] for name in topology.stages} == dict.fromkeys(topology.stages, "success")

    with told_as("scheduler", deployed) as settings:
        table = open_delta_table(PipelineRecords(settings, "gym").table_path("gold", "device_day"))
        assert table.to_pyarrow_table().num_rows > 0
    assert "gym" in sluice(deployed, "status", "gym")
    page = urllib.request.Request(f"{airflow.address}/sluice/gym/history", headers={"Authorization": airflow._authorization()})
    with urllib.request.urlopen(page, timeout=300) as answer:
        assert "<h2>device_day</h2>" in answer.read().decode(), "the API server reads the lake, too"

    handed_on = f"--py-files {write_job_code_zip(settings)}"
    logs = {name: "\n".join(airflow.log("gym", run["dag_run_id"], name, 1)) for name in topology.stages}
    submitted = {name for name, log in logs.items() if handed_on in log}
    assert submitted >= {*topology.computing}

    def all_finished() -> list[dict[str, Any]] | None:
        """The applications that the master knows to have ended, once they are as many; it hears of an end later than Airflow."""
        ended_apps: list[dict[str, Any]] = master(deployed)["completedapps"]
        return ended_apps if len(ended_apps) >= before + len(submitted) else None

    finished = until(all_finished, what="the end of the last application")
    assert len(finished) == before + len(submitted)
    assert {app["state"] for app in finished} == {"FINISHED"}


def test_what_is_on_a_store_is_on_no_disk(deployed: Deployment, airflow: Client) -> None:
    with told_as("scheduler", deployed) as settings:
        if is_on_disk(locate(settings.lake)):
            pytest.skip("this topology has its data on a volume")
        for folder in (locate(settings.lake), settings.restricted, settings.landing):
            assert next(iter(folder.rglob("*")), None), f"something of the run before is at {folder}"
    data, store = deployed.folder / "data", deployed.folder / "store"
    assert {path.name for path in data.iterdir()} == {"secrets", "truth", "vault", "released"}
    of_tables = [path for path in list_paths_below(deployed.folder) if path.suffix == ".parquet" or path.name == "_delta_log"]
    assert [path for path in of_tables if not path.is_relative_to(store)] == []
    assert list((deployed.folder / "work").glob("app-*/*")), "executors had a disk of their own"
    # versitygw logs other lines, of which none is one of these.
    asked = actions_in_log((deployed.folder / "store.log").read_text())
    assert asked - OF_OWNER <= EVERYDAY, "of the store nobody asked what deploy/aws/lake-policy.json does not allow"


@contextmanager
def told_as(service: str, deployed: Deployment) -> Iterator[Settings]:
    """This process gets the same settings for data and store as a service."""
    with pytest.MonkeyPatch.context() as patch:
        # A Spark session that another test of this process started has left its own settings here.
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            patch.delenv(name)
        for name, value in deployed.environment(service).items():
            if name.startswith(("SLUICE_", "AWS_")):
                patch.setenv(name, value)
        yield Settings.current()


def _settings(deployed: Deployment) -> Settings:
    with told_as("scheduler", deployed) as settings:
        return settings
