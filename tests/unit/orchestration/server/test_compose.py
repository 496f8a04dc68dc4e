"""docker-compose.yaml, alone and with docker-compose.store.yaml; the image, .env and what makes a deployment ready."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.compose_files import ON_STORE, ON_VOLUME, read_compose_services

from demonstrations.store_server import S3Server
from orchestration.server import deployment, environment_file, store_buckets
from sluice.errors import SluiceError, UsageError
from sluice.locations import locate
from sluice.settings import Settings
from sluice.stores.s3_client import open_s3_client

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = ROOT / "include" / "orchestration" / "server" / "environment_file.py"
AIRFLOW = {"apiserver", "scheduler", "dag-processor", "triggerer"}
ONCE = {"airflow-init", "store-init"}
ON_A_STORE = ("lake", "restricted", "landing")


@pytest.fixture(scope="module", params=[ON_VOLUME, ON_STORE], ids=["on-volume", "on-store"])
def services(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    return read_compose_services(request.param)


@pytest.fixture(scope="module")
def on_store() -> dict[str, dict[str, Any]]:
    return read_compose_services(ON_STORE)


def made(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if not line.startswith("#"))


def test_the_services_are_those_of_a_deployment(services: dict[str, Any]) -> None:
    assert set(services) - {"store", "store-init"} == {"postgres", "airflow-init", "spark-master", "spark-worker", *AIRFLOW}
    assert ("store" in services) == ("store-init" in services)


def test_images_are_pinned_by_version(services: dict[str, Any]) -> None:
    images = {service["image"] for service in services.values()}
    images |= set(re.findall(r"^ARG PYTHON_IMAGE=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    for image in images:
        tag = image.removesuffix("}").partition("@")[0].rpartition(":")[2]
        assert re.match(r"v?\d+\.\d+", tag), image


def test_every_service_that_stays_is_asked_for_its_health(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert ("healthcheck" in service) == (name not in ONCE), name


def test_airflow_starts_after_what_makes_it_ready(services: dict[str, Any]) -> None:
    assert services["airflow-init"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    for name in AIRFLOW:
        assert services[name]["depends_on"]["airflow-init"]["condition"] == "service_completed_successfully"
    assert services["scheduler"]["depends_on"]["spark-master"]["condition"] == "service_healthy"


def test_ports_are_open_to_this_machine_only_and_none_of_spark_is(services: dict[str, Any]) -> None:
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert set(ports) == {"apiserver"}
    assert all(port.startswith("127.0.0.1:") for port in ports["apiserver"])


def test_spark_knows_nothing_of_airflow(services: dict[str, Any]) -> None:
    for name in ("spark-master", "spark-worker"):
        told = services[name]["environment"]
        assert [key for key in told if key.startswith(("AIRFLOW", "POSTGRES", "STORE"))] == []
        assert "/opt/airflow" not in mounts(services[name])


def test_the_admin_password_is_told_to_the_init_alone(services: dict[str, Any]) -> None:
    assert [name for name, one in services.items() if "AIRFLOW_ADMIN_PASSWORD" in one["environment"]] == ["airflow-init"]


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Where volumes are in a service: how they may be used, by place."""
    found = {}
    for mount in service.get("volumes", []):
        if isinstance(mount, str):
            found[mount.split(":")[1]] = "write"
        else:
            assert mount["target"] == f"/data/{mount['volume']['subpath']}"
            found[mount["target"]] = "read" if mount.get("read_only") else "write"
    return found


def test_services_mount_what_they_need_and_no_more(services: dict[str, Any]) -> None:
    mounted = {name: mounts(service) for name, service in services.items()}
    on_volume = {} if "store" in services else {"/data/lake": "read"}
    assert mounted["apiserver"] == {"/opt/airflow": "write", **on_volume}
    for name in ("dag-processor", "triggerer"):
        assert mounted[name] == {"/opt/airflow": "write"}
    assert mounted["spark-master"] == {}
    assert "/data/vault" not in mounted["spark-worker"] and mounted["spark-worker"]["/data/secrets"] == "read"
    assert {name for name, found in mounted.items() if "/data/vault" in found} == {"scheduler"}
    assert {name for name, found in mounted.items() if "/data" in found} == {"airflow-init"}


def test_what_is_on_the_store_is_mounted_nowhere_and_each_service_of_airflow_is_told(on_store: dict[str, Any]) -> None:
    asked = {f"/data/{name}" for name in ON_A_STORE}
    assert {name: found for name, service in on_store.items() if (found := asked & set(mounts(service)))} == {}
    for name in (*AIRFLOW, *ONCE):
        told = on_store[name]["environment"]
        elsewhere = {"restricted": "/data/restricted"} if name == "apiserver" else {}
        expected = {root: f"s3://{root}/sluice" for root in ON_A_STORE} | elsewhere
        assert {root: told[f"SLUICE_{root.upper()}"] for root in ON_A_STORE} == expected
    asked = {f"/data/{name}" for name in ("released", "truth", "secrets", "vault")}
    assert set(mounts(on_store["scheduler"])) == {"/opt/airflow", *asked}


def test_only_who_reads_or_writes_the_store_has_its_key_and_who_reads_has_a_reader_s(on_store: dict[str, Any]) -> None:
    users = {
        name: told["AWS_ACCESS_KEY_ID"] for name, one in on_store.items() if "AWS_ACCESS_KEY_ID" in (told := one["environment"])
    }
    assert users == {"scheduler": "sluice", "spark-worker": "sluice", "store-init": "sluice", "apiserver": "sluice-reader"}
    of_writer = {name for name, one in on_store.items() if "STORE_SECRET_KEY" in str(one)}
    assert of_writer == {"store", "scheduler", "spark-worker", "store-init"}
    assert {name for name, one in on_store.items() if "STORE_READER_KEY" in str(one)} == {"store", "apiserver"}


def test_nothing_reads_the_store_before_its_buckets_are_there(on_store: dict[str, Any]) -> None:
    assert on_store["store-init"]["depends_on"] == {"store": {"condition": "service_healthy"}}
    assert on_store["airflow-init"]["depends_on"]["store-init"] == {"condition": "service_completed_successfully"}


@pytest.fixture
def beside_store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Settings:
    for name, value in {
        **s3_server.variables(),
        "AWS_SECRET_ACCESS_KEY": environment_file.generate_deployment_secrets()["STORE_SECRET_KEY"],
    }.items():
        monkeypatch.setenv(name, value)
    name = f"of-{uuid.uuid4().hex[:8]}"
    return replace(settings, lake=f"s3://{name}-lake/sluice", restricted=locate(f"s3://{name}-restricted/sluice"))


def test_the_buckets_are_made_once_and_the_reader_may_read_the_lake_alone(beside_store: Settings) -> None:
    lake, restricted = (str(root).split("/")[2] for root in (beside_store.lake, beside_store.restricted))
    assert store_buckets.make_buckets(beside_store, "sluice-reader") == [lake, restricted], "the landing folder is on a disk"
    (locate(beside_store.lake) / "kept").write_bytes(b"1")
    assert store_buckets.make_buckets(beside_store, "sluice-reader") == []
    assert (locate(beside_store.lake) / "kept").read_bytes() == b"1"
    client = open_s3_client()
    statements = json.loads(client.get_bucket_policy(Bucket=lake)["Policy"])["Statement"]
    assert {(*one["Principal"]["AWS"], *one["Action"], *one["Resource"]) for one in statements} == {
        ("sluice-reader", "s3:ListBucket", f"arn:aws:s3:::{lake}"),
        ("sluice-reader", "s3:GetObject", f"arn:aws:s3:::{lake}/*"),
    }
    with pytest.raises(client.exceptions.ClientError, match="NoSuchBucketPolicy"):
        client.get_bucket_policy(Bucket=restricted)


def test_the_bucket_of_released_copies_is_made_if_they_lie_on_the_store(beside_store: Settings) -> None:
    bucket = f"of-{uuid.uuid4().hex[:8]}-released"
    made = store_buckets.make_buckets(replace(beside_store, released=locate(f"s3://{bucket}/sluice")), "sluice-reader")
    assert bucket in made and len(made) == 3


def test_a_store_with_a_weak_key_or_that_does_not_answer_is_refused(
    beside_store: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SluiceError, match=r"The store makes no buckets \(EndpointConnectionError\)"):
        store_buckets.make_buckets(beside_store, "sluice-reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "changeme" * 10)
    with pytest.raises(UsageError, match=r"^AWS_SECRET_ACCESS_KEY is missing, short or guessable"):
        store_buckets.make_buckets(beside_store, "sluice-reader")


def test_the_init_makes_every_place_that_is_mounted(services: dict[str, Any], settings: Settings) -> None:
    deployment.make_environment_folders(settings)
    made = {path.name: path.stat().st_mode & 0o777 for path in settings.landing.parent.iterdir()}
    wanted = {root.removeprefix("/data/") for service in services.values() for root in mounts(service) if "/data/" in root}
    assert wanted <= set(made)
    assert {made[name] for name in ("restricted", "secrets", "vault")} == {0o700}


def test_what_mounts_a_part_of_a_volume_starts_after_the_init_that_makes_it(services: dict[str, Any]) -> None:
    """A container engine refuses to start a container whose subpath does not exist."""
    parts = {
        name
        for name, service in services.items()
        for mount in service.get("volumes", [])
        if not isinstance(mount, str) and "subpath" in mount["volume"]
    }
    assert {"scheduler", "spark-worker"} <= parts
    for name in parts:
        assert services[name]["depends_on"].get("airflow-init") == {"condition": "service_completed_successfully"}, name


def test_the_database_is_asked_by_the_way_that_others_take(services: dict[str, Any]) -> None:
    """While the image initialises the database, it runs a server that answers by the socket alone."""
    assert "--host=127.0.0.1" in services["postgres"]["healthcheck"]["test"]


def test_every_service_has_a_limit_of_memory_and_time_to_end(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["mem_limit"] and service["stop_grace_period"], name


def test_a_container_s_commands_mean_the_deployment_s_airflow(services: dict[str, Any]) -> None:
    for name in AIRFLOW:
        assert services[name]["environment"]["SLUICE_AIRFLOW"] == "http://apiserver:8080"


def test_every_secret_is_asked_for_made_and_has_no_default(tmp_path: Path) -> None:
    told = "".join((ROOT / name).read_text() for name in ON_STORE)
    asked = set(re.findall(r"\$\{(\w+):\?", told))
    environment_file.write_environment_file(tmp_path / ".env")
    assert asked == set(made(tmp_path / ".env"))
    assert [name for name in asked if re.search(rf"\$\{{{name}(:-|\}}|-)", told)] == []


def test_each_container_gets_the_secrets_under_the_names_of_the_list() -> None:
    told = "".join((ROOT / name).read_text() for name in ON_STORE)
    for secret in environment_file.DEPLOYMENT_SECRETS:
        assert re.search(rf"^ *{secret.in_container}: \$\{{{secret.in_env_file}:\?", told, re.MULTILINE), secret


def test_the_lengths_of_the_secrets_are_those_that_the_containers_ask_for() -> None:
    assert {secret.in_container: secret.least for secret in deployment.SECRETS} == {
        "POSTGRES_PASSWORD": 24,
        "AIRFLOW_ADMIN_PASSWORD": 12,
        "AIRFLOW__API__SECRET_KEY": 32,
        "AIRFLOW__API_AUTH__JWT_SECRET": 64,
        "AIRFLOW__CORE__FERNET_KEY": 44,
    }
    made = environment_file.generate_deployment_secrets()
    assert base64.urlsafe_b64decode(made["AIRFLOW_FERNET_KEY"]) and len(made["AIRFLOW_FERNET_KEY"]) == 44
    assert {name: len(value) for name, value in made.items() if name != "AIRFLOW_FERNET_KEY"} == {
        "POSTGRES_PASSWORD": 32,
        "AIRFLOW_ADMIN_PASSWORD": 16,
        "AIRFLOW_JWT_SECRET": 86,
        "AIRFLOW_SECRET_KEY": 64,
        "STORE_SECRET_KEY": 40,
        "STORE_READER_KEY": 40,
    }


def test_one_line_of_the_secrets_switches_the_store_on(tmp_path: Path) -> None:
    environment_file.write_environment_file(tmp_path / ".env")
    lines = (tmp_path / ".env").read_text().splitlines()
    assert [line for line in lines if "COMPOSE_FILE" in line] == [f"# COMPOSE_FILE={':'.join(ON_STORE)}"]


def test_secrets_are_made_for_their_owner_alone_and_never_twice(tmp_path: Path) -> None:
    # -I and no site packages: it runs where nothing is installed.
    command = [sys.executable, "-I", "-S", str(SCRIPT)]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    file = tmp_path / ".env"
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_text()
    assert [value for value in made(file).values() if value in first.stdout + first.stderr] == []
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "exists already and is kept" in again.stderr
    assert file.read_text() == content
    assert set(made(file).values()).isdisjoint(environment_file.generate_deployment_secrets().values()), "new ones each time"


def test_neither_git_nor_the_image_takes_the_secrets() -> None:
    ignored = subprocess.run(["git", "check-ignore", "--quiet", ".env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert ".env*" in (ROOT / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize("name", [secret.in_container for secret in deployment.SECRETS])
@pytest.mark.parametrize("weak", ["", "airflow", "x" * 80, "changeme" * 10, "a-secret-key-that-somebody-copied-" * 3])
def test_a_deployment_with_a_weak_secret_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, weak: str
) -> None:
    secrets = environment_file.generate_deployment_secrets()
    told = {secret.in_container: secrets[secret.in_env_file] for secret in deployment.SECRETS}
    assert all(len(told[secret.in_container]) >= secret.least for secret in deployment.SECRETS)
    told["SLUICE_AIRFLOW_LOGIN"] = str(tmp_path / "login.json")
    for key, value in (told | {name: weak}).items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UsageError, match=f"^{name} is missing, short or guessable") as caught:
        deployment.make_deployment_ready(Settings.current())
    assert not weak or weak not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_check_of_the_compose_file_passes() -> None:
    told = subprocess.run([ROOT / ".ci" / "compose-check"], env=_not_ci(), capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.search("Not checked by docker compose: |takes both, and nothing starts without its secrets$", told.stdout.strip())


@pytest.mark.parametrize("wrong", ON_STORE)
def test_the_check_of_the_compose_files_finds_a_misspelt_key(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "include").symlink_to(ROOT / "include")
    for name in ON_STORE:
        text = (ROOT / name).read_text()
        (tmp_path / name).write_text(text.replace("depends_on:", "depend_on:") if name == wrong else text)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "compose-check", tmp_path / ".ci" / "compose-check")
    told = subprocess.run([tmp_path / ".ci" / "compose-check"], env=_not_ci(), capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert "depend_on" in told.stdout


def _not_ci() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CI"} | {"VENV": sys.prefix}
