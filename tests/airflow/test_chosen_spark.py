"""The connection says which Spark a job goes to; what would not work is refused before anything is submitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow.test_spark_submit import context

from orchestration.backfill.without_airflow import _choose_spark_by_variable
from orchestration.spark_submit.chosen_spark import choose_spark
from sluice.errors import UsageError
from sluice.pipeline_stages import SILVER
from sluice.spark_process import build_spark_environment

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


def connect(patch: pytest.MonkeyPatch, **said: Any) -> None:
    extra = {"deploy-mode": "client", "spark-binary": "spark3-submit", **said.pop("extra", {})}
    patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "extra": extra, **said}))


@pytest.mark.parametrize("address", [{"host": "spark://there:7077"}, {"host": "spark://there", "port": 7077}])
def test_a_job_is_told_master_profile_and_python_of_the_connection(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, address: dict[str, Any]
) -> None:
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    connect(monkeypatch, **address, extra={"profile": "standalone", "executor-python": "/opt/python3"})
    checkout.records.unlink(missing_ok=True)
    SluiceSparkSubmitOperator(task_id="silver", pipeline="gym", stage=SILVER).execute(context())
    told = json.loads(checkout.records.read_text().splitlines()[0])
    said = dict(zip(told["argv"][:8:2], told["argv"][1:8:2], strict=True))
    assert said["--master"] == "spark://there:7077"
    assert Path(said["--properties-file"]).name == "spark-standalone.conf"
    assert said["--py-files"].endswith(".zip")
    assert told["spark"] == {
        "SLUICE_SPARK_MASTER": "spark://there:7077",
        "SLUICE_SPARK_PROFILE": "standalone",
        "PYSPARK_PYTHON": "/opt/python3",
    }
    chosen, binary = _choose_spark_by_variable(checkout.settings)
    assert (chosen.spark_master, chosen.spark_profile, binary) == ("spark://there:7077", "standalone", "spark3-submit")


@pytest.mark.parametrize(
    ("address", "extra", "says"),
    [
        ("spark://there:7077", {}, r'Spark profile \'local\' is for one machine. Add "profile": "standalone"'),
        ("yarn", {}, 'Add "profile": "yarn"'),
        ("k8s://https://there", {}, 'Add "profile": "kubernetes"'),
        ("spark://there:7077", {"profile": "standalon"}, "no Spark profile 'standalon'.*Did you mean 'standalone'"),
        ("spark://there:7077", {"profile": "standalone", "deploy-mode": "cluster"}, "no Python application in cluster mode"),
        ("yarn", {"profile": "yarn", "deploy-mode": "clustr"}, "is 'client' or 'cluster', not 'clustr'. Did you mean 'cluster'"),
    ],
)
def test_what_would_not_work_is_refused(checkout: Checkout, address: str, extra: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=f"onnection 'mine'.*{says}|{says}"):
        choose_spark(checkout.settings, "mine", address, extra)


def test_it_is_refused_before_anything_is_submitted(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    connect(monkeypatch, host="spark://there:7077")
    checkout.records.unlink(missing_ok=True)
    with pytest.raises(AirflowFailException, match="is for one machine"):
        SluiceSparkSubmitOperator(task_id="silver", pipeline="gym", stage=SILVER).execute(context())
    assert not checkout.records.exists()


def test_the_environment_says_what_the_connection_does_not(checkout: Checkout) -> None:
    assert choose_spark(checkout.settings, "mine", "local[3]", {}).spark_profile == checkout.settings.spark_profile
    assert build_spark_environment(choose_spark(checkout.settings, "mine", "local[3]", {}))["SPARK_LOCAL_IP"] == "127.0.0.1"
