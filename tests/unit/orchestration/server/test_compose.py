"""docker-compose.yaml, the image, .env and what makes a deployment ready."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration.server import deployment, environment_file
from sluice.errors import UsageError
from sluice.settings import Settings

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = ROOT / "include" / "orchestration" / "server" / "environment_file.py"
AIRFLOW = {"apiserver", "scheduler", "dag-processor", "triggerer"}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    said: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    return said


def made(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if not line.startswith("#"))


def test_the_services_are_those_of_a_deployment(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "airflow-init", "spark-master", "spark-worker", *AIRFLOW}


def test_images_are_pinned_by_version(services: dict[str, Any]) -> None:
    told = (ROOT / "docker-compose.yaml").read_text() + (ROOT / "Dockerfile").read_text()
    images = {service["image"] for service in services.values()} | set(re.findall(r"^ARG PYTHON_IMAGE=(\S+)", told, re.MULTILINE))
    for image in images:
        tag = image.removesuffix("}").rpartition(":")[2]
        assert re.match(r"\d+\.\d+", tag), image


def test_every_service_that_stays_is_asked_for_its_health(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert ("healthcheck" in service) == (name != "airflow-init"), name


def test_airflow_starts_after_what_makes_it_ready(services: dict[str, Any]) -> None:
    assert services["airflow-init"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
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
        assert [key for key in told if key.startswith(("AIRFLOW", "POSTGRES"))] == []
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
    places = {name: mounts(service) for name, service in services.items()}
    assert places["apiserver"] == {"/opt/airflow": "write", "/data/lake": "read"}
    for name in ("dag-processor", "triggerer"):
        assert places[name] == {"/opt/airflow": "write"}
    assert places["spark-master"] == {}
    assert "/data/vault" not in places["spark-worker"] and places["spark-worker"]["/data/secrets"] == "read"
    assert {name for name, found in places.items() if "/data/vault" in found} == {"scheduler"}
    assert {name for name, found in places.items() if "/data" in found} == {"airflow-init"}


def test_the_init_makes_every_place_that_is_mounted(services: dict[str, Any], settings: Settings) -> None:
    deployment.make_environment_folders(settings)
    made = {path.name: path.stat().st_mode & 0o777 for path in settings.landing.parent.iterdir()}
    wanted = {place.removeprefix("/data/") for service in services.values() for place in mounts(service) if "/data/" in place}
    assert wanted <= set(made)
    assert {made[name] for name in ("restricted", "secrets", "vault")} == {0o700}


def test_every_service_has_a_limit_of_memory_and_time_to_end(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["mem_limit"] and service["stop_grace_period"], name


def test_a_container_s_commands_mean_the_deployment_s_airflow(services: dict[str, Any]) -> None:
    for name in AIRFLOW:
        assert services[name]["environment"]["SLUICE_AIRFLOW"] == "http://apiserver:8080"


def test_every_secret_is_asked_for_made_and_has_no_default(tmp_path: Path) -> None:
    asked = set(re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yaml").read_text()))
    environment_file.write_environment_file(tmp_path / ".env")
    assert asked == set(made(tmp_path / ".env"))
    told = (ROOT / "docker-compose.yaml").read_text()
    assert [name for name in asked if re.search(rf"\$\{{{name}(:-|\}}|-)", told)] == []


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
    assert "is there already and is kept" in again.stderr
    assert file.read_text() == content
    assert set(made(file).values()).isdisjoint(environment_file.generate_deployment_secrets().values()), "new ones each time"


def test_neither_git_nor_the_image_takes_the_secrets() -> None:
    ignored = subprocess.run(["git", "check-ignore", "--quiet", ".env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert ".env*" in (ROOT / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize("name", list(deployment.SECRETS))
@pytest.mark.parametrize("weak", ["", "airflow", "x" * 80, "changeme" * 10, "a-secret-key-that-somebody-copied-" * 3])
def test_a_deployment_with_a_weak_secret_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, weak: str
) -> None:
    secrets = environment_file.generate_deployment_secrets()
    told = {
        "POSTGRES_PASSWORD": secrets["POSTGRES_PASSWORD"],
        "AIRFLOW_ADMIN_PASSWORD": secrets["AIRFLOW_ADMIN_PASSWORD"],
        "AIRFLOW__API__SECRET_KEY": secrets["AIRFLOW_SECRET_KEY"],
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets["AIRFLOW_JWT_SECRET"],
        "AIRFLOW__CORE__FERNET_KEY": secrets["AIRFLOW_FERNET_KEY"],
        "SLUICE_AIRFLOW_LOGIN": str(tmp_path / "login.json"),
    }
    assert set(deployment.SECRETS) < set(told)
    for key, value in (told | {name: weak}).items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UsageError, match=f"^{name} is missing, short or guessable") as caught:
        deployment.make_deployment_ready(Settings.current())
    assert not weak or weak not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_check_of_the_compose_file_passes() -> None:
    told = subprocess.run([ROOT / ".ci" / "compose-check"], env=_not_ci(), capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.search("Not checked by docker compose: |takes it, and nothing starts without its secrets$", told.stdout.strip())


def test_the_check_of_the_compose_file_finds_a_misspelt_key(tmp_path: Path) -> None:
    (tmp_path / "include").symlink_to(ROOT / "include")
    text = (ROOT / "docker-compose.yaml").read_text()
    (tmp_path / "docker-compose.yaml").write_text(text.replace("depends_on:", "depend_on:"))
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "compose-check", tmp_path / ".ci" / "compose-check")
    told = subprocess.run([tmp_path / ".ci" / "compose-check"], env=_not_ci(), capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert "depend_on" in told.stdout


def _not_ci() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CI"} | {"VENV": sys.prefix}
