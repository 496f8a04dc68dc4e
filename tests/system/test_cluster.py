"""The gym's job on a standalone cluster of two workers that have nothing of the checkout gives the tables of one machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow.test_spark_submit import context

from demonstrations.store_server import S3Server
from orchestration.server.standalone_cluster import StandaloneCluster
from sluice.delta_log import open_delta_table
from sluice.locations import locate
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.system, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).resolve().parents[2]
OWN = ("include", "spark_jobs", "environments", "dags", "tests", ".sluice")
"""Folders of the checkout that no executor may read. Its environment, .venv, stands for what an image has installed."""
AT_ONCE = {"HERE = 32_000_000": "HERE = 0", "IN_PLAN = 1_000_000": "IN_PLAN = 0"}
"""Made so small, all files are read by executors, and all records wait for them on the shared disk."""
OF_THE_RUN = {"_ingested_at", "quarantined_at"}
"""Columns that tell when a run was."""


@dataclass(frozen=True)
class Project:
    """A copy of the code, deliveries and secrets; and lakes, one for each Spark that the same job runs on."""

    root: Path
    folder: Path

    def place(self, lake: str, name: str) -> str:
        """Where a lake's tables, its restricted ones and what was released are. A lake may be a URL."""
        if "://" in lake and name != "released":
            return f"{lake}/{name}"
        return str(self.folder / lake.rpartition("/")[2] / name)

    @contextmanager
    def over(self, lake: str, connection: dict[str, Any], landing: str = "") -> Iterator[Settings]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLUICE_ROOT", str(self.root))
            patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
            patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
            for place in ("landing", "secrets", "truth", "vault"):
                patch.setenv(f"SLUICE_{place.upper()}", str(self.folder / place))
            for place in ("lake", "restricted", "released"):
                patch.setenv(f"SLUICE_{place.upper()}", self.place(lake, place))
            if landing:
                patch.setenv("SLUICE_LANDING", landing)
            for name in ("SLUICE_SPARK_MASTER", "SLUICE_SPARK_PROFILE", "PYTHONPATH"):
                patch.delenv(name, raising=False)
            if connection is LOCAL:  # to which no code is shipped
                patch.setenv("PYTHONPATH", str(self.root / "include"))
            yield Settings.current()

    def run(self, lake: str, connection: dict[str, Any], landing: str = "") -> dict[str, Any]:
        """Run all layers as a task of Airflow does; the job's report."""
        from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

        with self.over(lake, connection, landing):
            operator = SluiceSparkSubmitOperator(task_id="layers", pipeline="gym", stage="layers")
            report: dict[str, Any] = operator.execute(context())
        return report

    def tables(self, lake: str) -> dict[str, list[str]]:
        """The rows of all tables, as sorted texts, by path."""
        found = {}
        for root in ("lake", "restricted"):
            place = locate(self.place(lake, root))
            for log in sorted(place.glob("*/*/*/_delta_log")):
                if "_sluice" in log.parts:
                    continue
                table = open_delta_table(str(log.parent)).to_pyarrow_table()
                kept = table.select([name for name in table.column_names if name not in OF_THE_RUN])
                found[f"{root}/{log.parent.relative_to(place)}"] = sorted(map(repr, kept.to_pylist()))
        return found

    def staged(self, lake: str) -> list[Path]:
        with self.over(lake, LOCAL) as settings:
            return list(Path(PipelineRecords(settings, "gym").bookkeeping("staging")).glob("*"))


LOCAL = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"}}


@pytest.fixture(scope="module")
def project(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("cluster-project")
    root = folder / "code"
    for name in ("include", "spark_jobs", "environments", "dags"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (root / ".sluice").mkdir()
    for name in ("jars", "log-store", "store-jars"):
        (root / ".sluice" / name).symlink_to(ROOT / ".sluice" / name)
    records = root / "include" / "sluice" / "ingest" / "reading" / "records.py"
    text = records.read_text()
    for said, instead in AT_ONCE.items():
        assert said in text
        text = text.replace(said, instead)
    records.write_text(text)
    pipeline = root / "include" / "pipelines" / "gym" / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace('    owner="sluice",\n', '    owner="sluice",\n    stages="together",\n'))
    made = Project(root, folder)
    with made.over("land", LOCAL):
        subprocess.run([ROOT / ".venv" / "bin" / "sluice", "land", "gym", "--days", "1", "--scale", "0.1"], check=True)
    return made


@pytest.fixture(scope="module")
def store(s3_server: S3Server) -> Iterator[str]:
    """A bucket, as a URL, that this process and each that it starts can reach."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.variables().items():
            patch.setenv(name, value)
        yield f"s3://{s3_server.make_bucket()}"


@pytest.fixture(scope="module")
def cluster(project: Project, store: str) -> Iterator[StandaloneCluster]:
    with project.over("none", LOCAL) as settings:
        hidden = [str(folder / name) for folder in (ROOT, project.root) for name in OWN if (folder / name).is_dir()]
        hide = 'for folder in {}; do mount -t tmpfs none "$folder" || exit 1; done; exec "$@"'.format(" ".join(hidden))
        before = ("unshare", "--mount", "sh", "-c", hide, "sh") if _may_hide_folders() else ()
        with StandaloneCluster(settings, project.folder / "cluster", before=before) as made:
            yield made


def _may_hide_folders() -> bool:
    """Whether this user may take folders away from a process, which is the stronger proof."""
    if os.geteuid() or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def test_executors_have_code_python_and_jars_and_nothing_of_the_checkout(project: Project, cluster: StandaloneCluster) -> None:
    from orchestration.spark_submit.hook import SluiceSparkSubmitHook, choose_spark_by_connection
    from orchestration.spark_submit.job_code import job_code_to_ship

    told = project.folder / "told.json"
    with project.over("none", cluster.connection):
        settings = choose_spark_by_connection(Settings.current(), "spark_default")
        code = job_code_to_ship(settings)
        SluiceSparkSubmitHook(
            stop_request=project.folder / "stop",
            conn_id="spark_default",
            properties_file=str(settings.spark_properties),
            py_files=str(code),
            settings=settings,
            application_args=[str(told)],
        ).submit(str(ROOT / "tests" / "system" / "where_code_is.py"))
    found = json.loads(told.read_text())
    assert f"/{code.name if code else ''}/sluice/" in found["driver"]
    assert len(found["executors"]) == 2
    for imported, folder, pipeline, path, variables in found["executors"]:
        assert f"/{code.name if code else ''}/sluice/" in imported
        assert Path(folder).is_relative_to(project.folder / "cluster"), "an executor of a worker"
        assert pipeline == "gym"
        own = [str(where / name) for where in (ROOT, project.root) for name in OWN]
        assert [one for one in path if one.startswith(tuple(own))] == []
        assert [name for name in variables if name.startswith("SLUICE")] == []


def test_the_same_deliveries_give_the_same_tables(project: Project, cluster: StandaloneCluster) -> None:
    report = project.run("on-cluster", cluster.connection)
    assert project.run("on-one-machine", LOCAL).keys() == report.keys()
    expected, found = project.tables("on-one-machine"), project.tables("on-cluster")
    assert found.keys() == expected.keys()
    assert {name: len(rows) for name, rows in found.items()} == {name: len(rows) for name, rows in expected.items()}
    assert found == expected
    assert found["lake/gym/gold/device_day"]
    assert project.staged("on-cluster") == []
    assert cluster.read_state()["completedapps"][-1]["state"] == "FINISHED"


@pytest.mark.slow
def test_a_cluster_that_shares_a_store_with_its_driver_and_no_disk_gives_the_tables_of_one_machine(
    project: Project, cluster: StandaloneCluster, store: str
) -> None:
    landed, landing = project.folder / "landing", locate(f"{store}/landing")
    for file in sorted((path for path in landed.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime):
        landing.joinpath(file.relative_to(landed)).write_bytes(file.read_bytes())
    landed.rename(landed.with_name("landing-away"))
    try:
        project.run(store, cluster.connection, str(landing))
        project.run("beside-the-store", LOCAL, str(landing))
    finally:
        landed.with_name("landing-away").rename(landed)
    expected, found = project.tables("beside-the-store"), project.tables(store)
    assert {name: len(rows) for name, rows in found.items()} == {name: len(rows) for name, rows in expected.items()}
    assert found == expected and found["lake/gym/gold/device_day"]
    assert not list(locate(store, "lake", "gym", "_sluice", "staging").rglob("*"))
    assert cluster.read_state()["completedapps"][-1]["state"] == "FINISHED"
    on_disk = project.folder / store.rpartition("/")[2]
    assert not list(on_disk.glob("lake")) + list(on_disk.glob("restricted")), "nothing of it lies on this machine's disk"


@pytest.mark.crash
@pytest.mark.parametrize("lost", ["executor", "worker"])
def test_a_job_outlives_what_it_loses(project: Project, cluster: StandaloneCluster, lost: str) -> None:
    killed: list[int] = []
    finished = threading.Event()

    def kill_in_the_middle() -> None:
        while not finished.is_set():
            rows = list((project.folder / f"lost-{lost}" / "lake").rglob("bronze/*/*.parquet"))
            executors = cluster.find_executors("worker-2")
            if rows and executors:
                killed.append(executors[0].pid)
                if lost == "executor":
                    executors[0].kill()
                else:
                    cluster.kill_worker("worker-2")
                return
            time.sleep(0.05)

    thread = threading.Thread(target=kill_in_the_middle)
    thread.start()
    try:
        project.run(f"lost-{lost}", cluster.connection)
    finally:
        finished.set()
        thread.join()
        if "worker-2" not in cluster.processes:
            cluster.start_worker("worker-2")
    assert killed, "nothing was lost"
    assert project.tables(f"lost-{lost}") == project.tables("on-one-machine")
    assert project.staged(f"lost-{lost}") == []
