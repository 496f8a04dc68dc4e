"""The manifests for Kubernetes, read by the client that Spark has, with names that belong together. No cluster is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "deploy" / "kubernetes"
DOCUMENTS = [(file.name, one) for file in sorted(FOLDER.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text())]


def profile() -> dict[str, str]:
    lines = (ROOT / "spark_jobs" / "conf" / "kubernetes.conf").read_text().splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize(("file", "document"), DOCUMENTS, ids=[f"{file}-{one['kind']}" for file, one in DOCUMENTS])
def test_each_field_is_one_that_the_api_knows(spark: SparkSession, file: str, document: dict[str, Any]) -> None:
    jvm: Any = spark._jvm
    text = json.dumps(document)
    read = jvm.io.fabric8.kubernetes.client.utils.KubernetesSerialization().unmarshal(text)
    assert read.getClass().getSimpleName() == document["kind"]
    assert unknown_fields(read, document, "") == []


def unknown_fields(read: Any, document: Any, where: str) -> list[str]:
    """What a manifest has that the client's classes have no field for, at any depth."""
    if isinstance(document, list):
        items = enumerate(document)
        return [one for number, item in items for one in unknown_fields(read[number], item, f"{where}[{number}]")]
    if not isinstance(document, dict) or not read.getClass().getName().startswith("io.fabric8.kubernetes.api.model"):
        return []
    unknown = set(read.getAdditionalProperties())
    found = [f"{where}.{key}" for key in document if key in unknown]
    for key in document.keys() - unknown:
        value = getattr(read, f"get{key[0].upper()}{key[1:]}")()
        found += unknown_fields(value, document[key], f"{where}.{key}")
    return found


def test_a_misspelt_field_would_be_found(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    document = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "volumeMount": []}]}}
    read = jvm.io.fabric8.kubernetes.client.utils.KubernetesSerialization().unmarshal(json.dumps(document))
    assert unknown_fields(read, document, "") == [".spec.containers[0].volumeMount"]


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_names_and_places_are_those_of_profile_and_image(role: str) -> None:
    by_kind = {one["kind"]: one for _, one in DOCUMENTS if one["kind"] != "Pod"}
    names = {(one["kind"], one["metadata"].get("name")) for _, one in DOCUMENTS}
    (template,) = (one for file, one in DOCUMENTS if file == f"{role}-pod.yaml")
    said = profile()
    assert ("Namespace", said["spark.kubernetes.namespace"]) in names
    namespaces = {one["metadata"]["namespace"] for _, one in DOCUMENTS if one["kind"] not in {"Namespace", "Pod"}}
    assert namespaces == {said["spark.kubernetes.namespace"]}
    assert Path(said[f"spark.kubernetes.{role}.podTemplateFile"]) == Path(f"/opt/sluice/deploy/kubernetes/{role}-pod.yaml")
    (container,) = template["spec"]["containers"]
    assert container["name"] == said[f"spark.kubernetes.{role}.podTemplateContainerName"]
    assert container["image"] == said["spark.kubernetes.container.image"]
    assert ("ServiceAccount", template["spec"]["serviceAccountName"]) in names
    (script,) = container["command"]
    assert (ROOT / Path(script).relative_to("/opt/sluice")).stat().st_mode & 0o111
    claims = {volume.get("persistentVolumeClaim", {}).get("claimName") for volume in template["spec"]["volumes"]}
    assert by_kind["PersistentVolumeClaim"]["metadata"]["name"] in claims
    user = f"useradd --uid {template['spec']['securityContext']['runAsUser']} "
    assert user in (ROOT / "Dockerfile").read_text()
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    if role == "executor":  # of the vault and the secrets it sees nothing, and of the API it asks nothing
        assert not mounted & {"/data", "/data/vault", "/data/secrets", "/data/truth"}
        assert template["spec"]["automountServiceAccountToken"] is False
    else:
        assert "/data" in mounted
        assert said["spark.kubernetes.authenticate.driver.serviceAccountName"] == template["spec"]["serviceAccountName"]


def test_a_driver_starts_with_what_spark_tells_it(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's command for a Python driver in its pod: a properties file, the class that runs Python, the script and its arguments."""
    home = str(spark._jvm.java.lang.System.getenv("SPARK_HOME"))  # type: ignore[union-attr]
    job, properties = tmp_path / "job.py", tmp_path / "spark.properties"
    job.write_text("import os, sys\nprint('told', sys.argv[1:], os.environ['SLUICE_LAKE'])\n")
    properties.write_text(f"spark.master local[1]\nspark.pyspark.driver.python {sys.executable}\n")
    variables = {
        "PATH": "/usr/bin:/bin",
        "SPARK_HOME": home,
        "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
        "SLUICE_LAKE": "/data/lake",
    }
    told = ["driver", "--properties-file", str(properties), "--class", "org.apache.spark.deploy.PythonRunner"]
    done = subprocess.run(
        [FOLDER / "driver.sh", *told, f"local://{job}", "--pipeline", "gym"],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "told ['--pipeline', 'gym'] /data/lake" in done.stdout, done.stderr[-2000:]


def test_an_executor_starts_with_what_spark_tells_it(spark: SparkSession, tmp_path: Path) -> None:
    """Java runs the class of Spark's with these arguments: it looks for its driver, which is not there."""
    jvm: Any = spark._jvm
    home = jvm.java.lang.System.getenv("SPARK_HOME")
    variables = {
        "PATH": "/usr/bin:/bin",
        "SPARK_HOME": home,
        "SPARK_DIST_CLASSPATH": str(ROOT / ".sluice" / "jars" / "*"),
        "SPARK_JAVA_OPT_0": "-Dfirst=with a blank",
        "SPARK_JAVA_OPT_10": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "SPARK_JAVA_OPT_2": "-Dspark.rpc.askTimeout=5s",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod-1",
    }
    done = subprocess.run(
        [FOLDER / "executor.sh", "executor"],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode != 0
    assert "KubernetesExecutorBackend" in done.stdout + done.stderr
    assert "Failed to connect to /127.0.0.1:9" in done.stdout + done.stderr
