"""The gym's job on a standalone cluster of two workers that have nothing of the checkout gives the tables of one machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.system.cluster_project import LOCAL, ROOT, Project, land_on_store, make_project
from tests.waiting import until

from demonstrations.store_server import S3Server
from orchestration.server.standalone_cluster import StandaloneCluster
from orchestration.server.supervisor import find_session_members
from sluice.locations import locate
from sluice.pipeline_stages import BRONZE, LAYERS, Stage
from sluice.settings import Settings
from sluice.spark_process import find_spark_properties_file

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.system, pytest.mark.filterwarnings("default")]

OWN = ("include", "spark_jobs", "environments", "dags", "tests", ".sluice")
"""Folders of the checkout that no executor may read. Its environment, .venv, stands for what an image has installed."""


@pytest.fixture(scope="module")
def project(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("cluster-project"))


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


@pytest.fixture(scope="module")
def on_one_machine(project: Project) -> tuple[set[str], dict[str, list[str]]]:
    """The entries of the report, and the tables, of the same job without a cluster."""
    report = project.run("on-one-machine", LOCAL)
    return set(report), project.tables("on-one-machine")


def find_executors(cluster: StandaloneCluster, name: str) -> list[psutil.Process]:
    """The running JVMs of the executors that a worker started."""
    return [one for one in find_session_members(cluster.processes[name].pid) if _is_executor(one)]


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    except psutil.Error:
        return False


def kill_worker(cluster: StandaloneCluster, name: str) -> None:
    """Kill a worker and all that it started, as when a machine fails."""
    process = cluster.processes.pop(name)
    for one in find_session_members(process.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.kill()
    process.wait()


def end_of_application(cluster: StandaloneCluster, before: int) -> str:
    """The state in which the last application ended, once the master knows more than so many that did: it hears of an end late."""
    ended = until(lambda: (found := cluster.read_state()["completedapps"])[before:] and found, what="the end of the application")
    return str(ended[-1]["state"])


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
            properties_file=str(find_spark_properties_file(settings)),
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


def test_the_same_deliveries_give_the_same_tables(
    project: Project, cluster: StandaloneCluster, on_one_machine: tuple[set[str], dict[str, list[str]]]
) -> None:
    before = len(cluster.read_state()["completedapps"])
    report = project.run("on-cluster", cluster.connection)
    entries, expected = on_one_machine
    assert set(report) == entries
    found = project.tables("on-cluster")
    assert found.keys() == expected.keys()
    assert {name: len(rows) for name, rows in found.items()} == {name: len(rows) for name, rows in expected.items()}
    assert found == expected
    assert found["lake/gym/gold/device_day"]
    assert project.staged("on-cluster") == []
    assert end_of_application(cluster, before) == "FINISHED"


@pytest.mark.slow
def test_a_cluster_that_shares_a_store_with_its_driver_and_no_disk_gives_the_tables_of_one_machine(
    project: Project, cluster: StandaloneCluster, store: str
) -> None:
    landing, before = locate(f"{store}/landing"), len(cluster.read_state()["completedapps"])
    away = land_on_store(project, landing)
    try:
        project.run(store, cluster.connection, str(landing))
        project.run("beside-the-store", LOCAL, str(landing))
    finally:
        away.rename(project.folder / "landing")
    expected, found = project.tables("beside-the-store"), project.tables(store)
    assert {name: len(rows) for name, rows in found.items()} == {name: len(rows) for name, rows in expected.items()}
    assert found == expected and found["lake/gym/gold/device_day"]
    assert not list(locate(store, "lake", "gym", "_sluice", "staging").rglob("*"))
    assert end_of_application(cluster, before) == "FINISHED"
    on_disk = project.folder / store.rpartition("/")[2]
    assert not list(on_disk.glob("lake")) + list(on_disk.glob("restricted")), "nothing of it lies on this machine's disk"


@pytest.mark.crash
@pytest.mark.parametrize(("lost", "stage"), [("executor", BRONZE), ("worker", LAYERS)], ids=["executor", "worker"])
def test_a_job_outlives_what_it_loses(
    project: Project, cluster: StandaloneCluster, on_one_machine: tuple[set[str], dict[str, list[str]]], lost: str, stage: Stage
) -> None:
    killed: list[int] = []
    finished = threading.Event()

    def kill_in_the_middle() -> None:
        while not finished.is_set():
            rows = list((project.folder / f"lost-{lost}" / "lake").glob("*/bronze/*/*.parquet"))
            executors = find_executors(cluster, "worker-2")
            if rows and executors:
                killed.append(executors[0].pid)
                if lost == "executor":
                    executors[0].kill()
                else:
                    kill_worker(cluster, "worker-2")
                return
            time.sleep(0.05)

    thread = threading.Thread(target=kill_in_the_middle)
    thread.start()
    try:
        project.run(f"lost-{lost}", cluster.connection, stage=stage)
    finally:
        finished.set()
        thread.join()
        if "worker-2" not in cluster.processes:
            cluster.start_worker("worker-2")
    assert killed, "nothing was lost"
    (_, expected), found = on_one_machine, project.tables(f"lost-{lost}")
    assert {name for name in expected if stage is LAYERS or "/bronze/" in name} <= found.keys()
    assert found == {name: expected[name] for name in found}
    assert project.staged(f"lost-{lost}") == []
