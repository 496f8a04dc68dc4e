"""Cluster mode on a real YARN: the driver's container shares a store with its task, but no code; one is killed, and the next continues."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.system.cluster_project import LOCAL, ROOT, Project, land_on_store, make_project
from tests.system.yarn_cluster import JARS, YarnCluster

from demonstrations.store_server import S3Server
from orchestration.server.standalone_cluster import make_executor_image
from sluice.locations import locate
from sluice.spark_process import build_spark_environment

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        not (ROOT / ".sluice" / JARS).is_dir() and not os.environ.get("CI"), reason="YARN is not fetched: make test-slow does"
    ),
]


@pytest.fixture(scope="module")
def project(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("yarn-project"))


@pytest.fixture(scope="module")
def yarn(project: Project, s3_server: S3Server) -> Iterator[YarnCluster]:
    folder = project.folder / "yarn"
    folder.mkdir()
    with project.over("none", LOCAL) as settings:
        (settings.state / JARS).symlink_to(ROOT / ".sluice" / JARS)
        make_executor_image(settings, folder / "image")
        with YarnCluster(settings, folder, s3_server.variables()) as running:
            yield running


@pytest.fixture
def variables(yarn: YarnCluster, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration.spark_submit import cluster_driver

    monkeypatch.setattr(cluster_driver, "_MANAGER_EVERY", 5.0)
    for name, value in {**s3_server.variables(), "HADOOP_CONF_DIR": str(yarn.conf)}.items():
        monkeypatch.setenv(name, value)


def connection(yarn: YarnCluster) -> dict[str, Any]:
    extra = {"deploy-mode": "cluster", "spark-binary": "spark-submit", "profile": "yarn"}
    extra |= {"executor-python": str(yarn.folder / "image" / "python" / "bin" / "python")}
    return {"conn_type": "spark", "host": "yarn", "extra": {**extra, "yarn_resourcemanager_webapp_address": yarn.address}}


def properties(project: Project, yarn: YarnCluster) -> dict[str, str]:
    """What a cluster's own configuration would say: where its nodes have Spark, and how small all is here."""
    with project.over("none", LOCAL) as settings:
        spark = build_spark_environment(settings)["SPARK_HOME"]
    return {
        "spark.yarn.jars": f"local:{spark}/jars/*",
        "spark.yarn.stagingDir": f"file://{yarn.folder}/staging",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.executor.instances": "1",
        "spark.driver.memory": "1500m",
    }


@pytest.mark.crash
def test_a_driver_in_a_container_gives_the_tables_of_one_machine_and_one_that_is_killed_is_followed_by_the_next(
    project: Project, yarn: YarnCluster, s3_server: S3Server, variables: None
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    store = f"s3://{s3_server.make_bucket()}"
    landing = locate(store, "landing")
    away = land_on_store(project, landing)
    killed: list[str] = []
    finished = threading.Event()

    def kill_in_the_middle() -> None:
        while not finished.is_set() and not killed:
            if list(locate(store, "lake", "gym", "bronze").rglob("*.parquet")):
                killed.extend(yarn.kill_driver())
            time.sleep(0.2)

    thread = threading.Thread(target=kill_in_the_middle)
    thread.start()
    try:
        with pytest.raises(AirflowException, match="it was killed") as lost:
            project.run(store, connection(yarn), str(landing), attempt=1, conf=properties(project, yarn))
        finished.set()
        thread.join()
        assert not isinstance(lost.value, AirflowFailException), "the next attempt may succeed"
        assert {"java", "python"} <= {name.rstrip("0123456789.") for name in killed}
        report = project.run(store, connection(yarn), str(landing), attempt=2, conf=properties(project, yarn))
        expected_report = project.run("on-one-machine", LOCAL, str(landing))
    finally:
        finished.set()
        thread.join()
        away.rename(project.folder / "landing")
    assert report.keys() == expected_report.keys()
    expected, found = project.tables("on-one-machine"), project.tables(store)
    assert {name: len(rows) for name, rows in found.items()} == {name: len(rows) for name, rows in expected.items()}
    assert found == expected and found["lake/gym/gold/device_day"]
    first, second = yarn.list_applications()
    assert (first["finalStatus"], second["finalStatus"]) == ("FAILED", "SUCCEEDED"), "each attempt is one of Airflow's"
    books = locate(store, "lake", "gym", "_sluice")
    assert not list((books / "followed_jobs").glob("*-2.json")), "the task that came back for it took it away"
    assert not list((books / "staging").rglob("*"))
    logs = yarn.read_logs()
    assert s3_server.variables()["AWS_SECRET_ACCESS_KEY"] not in logs
    assert json.dumps(sorted(report["flows"][0])) and "Traceback" not in logs
