"""Environments and Spark profiles: one variable chooses, another may differ, a wrong name is reported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.errors import UsageError
from sluice.root_folders import ROOT_FOLDERS
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("nothing_said")


def test_dev_is_taken_where_nothing_is_said(nothing_said: pytest.MonkeyPatch) -> None:
    settings = Settings.current()
    assert settings.environment == "dev"
    assert (settings.lake, settings.landing) == (str(ROOT / "lake"), ROOT / "landing")
    nothing_said.setenv("SLUICE_ENV", "")
    assert Settings.current() == settings


def test_no_two_environments_share_a_place(nothing_said: pytest.MonkeyPatch) -> None:
    places: list[str] = []
    for name in ("dev", "test", "prod"):
        nothing_said.setenv("SLUICE_ENV", name)
        settings = Settings.current()
        assert settings.environment == name
        places += settings.root_variables.values()
    assert len(places) == len(set(places)) == 3 * len(ROOT_FOLDERS)


def test_dev_and_test_lie_below_the_checkout_whoever_asks(root: Path, nothing_said: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("dev", "test"):
        nothing_said.setenv("SLUICE_ENV", name)
        nothing_said.chdir("/")
        settings = Settings.current()
        assert settings.landing.is_relative_to(root)
        assert settings.lake.startswith(str(root))


def test_a_variable_wins_over_the_file(nothing_said: pytest.MonkeyPatch) -> None:
    nothing_said.setenv("SLUICE_ENV", "prod")
    nothing_said.setenv("SLUICE_LAKE", "elsewhere")
    nothing_said.setenv("SLUICE_SECRETS", "/run/secrets")
    nothing_said.setenv("SLUICE_SPARK_MASTER", "local[1]")
    nothing_said.setenv("SLUICE_SPARK_PROFILE", "large")
    settings = Settings.current()
    assert (settings.lake, settings.secrets) == (str(ROOT / "elsewhere"), Path("/run/secrets"))
    assert (settings.spark_master, settings.spark_profile) == ("local[1]", "large")
    assert settings.landing == Path("/data/landing"), "what no variable names is the file's"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SLUICE_ENV", "prd", "There is no environment 'prd'. Did you mean 'prod'?"),
        ("SLUICE_ENV", "../prod", "There is no environment '../prod'."),
        ("SLUICE_SPARK_PROFILE", "standalnoe", "Did you mean 'standalone'?"),
        ("SLUICE_SPARK_PROFILE", "spark-defaults", "There is no Spark profile 'spark-defaults'"),
    ],
)
def test_a_wrong_name_is_told_with_the_nearest(nothing_said: pytest.MonkeyPatch, variable: str, value: str, told: str) -> None:
    nothing_said.setenv(variable, value)
    with pytest.raises(UsageError, match=re.escape(told)):
        Settings.current()


def test_a_wrong_name_ends_a_command_with_2_and_one_line() -> None:
    environment = {**os.environ, "SLUICE_ENV": "prood"}
    told = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "status"], env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1
    assert "Did you mean 'prod'?" in told.stderr


@pytest.mark.parametrize(
    ("line", "instead", "told"),
    [
        ('lake = "lake"', 'lak = "lake"', "there is no setting 'lak'. Did you mean 'lake'?"),
        ('lake = "lake"', "", "'lake' must be set"),
        ('lake = "lake"', "lake = 7", "'lake' must be set to a non-empty string"),
        ('profile = "local"', 'profil = "local"', "there is no setting 'spark.profil'. Did you mean 'profile'?"),
        ("[spark]", "[[spark]]", "'spark.profile' must be set"),
        ('lake = "lake"', "lake = lake", "is not TOML"),
    ],
)
def test_a_file_that_does_not_say_what_it_must_is_refused(root: Path, line: str, instead: str, told: str) -> None:
    file = root / "environments" / "dev.toml"
    text = file.read_text()
    assert text.count(line) == 1
    file.write_text(text.replace(line, instead))
    with pytest.raises(UsageError, match=re.escape(told)) as caught:
        Settings.current()
    assert str(file) in str(caught.value)


def test_a_new_environment_is_a_new_file(root: Path, nothing_said: pytest.MonkeyPatch) -> None:
    shutil.copy(root / "environments" / "test.toml", root / "environments" / "staging.toml")
    nothing_said.setenv("SLUICE_ENV", "staging")
    assert Settings.current().environment == "staging"


def test_a_process_that_is_started_has_the_same_settings(root: Path, nothing_said: pytest.MonkeyPatch) -> None:
    nothing_said.setenv("SLUICE_ENV", "prod")
    nothing_said.setenv("SLUICE_LANDING", "landed")
    settings = Settings.current()
    environment = build_spark_environment(settings)
    for name in [name for name in os.environ if name.startswith("SLUICE_")]:
        nothing_said.delenv(name)
    for name, value in environment.items():
        nothing_said.setenv(name, value)
    assert Settings.current() == settings


@pytest.mark.parametrize("name", ["secrets", "vault", "truth"])
def test_what_must_lie_on_a_disk_is_refused_on_a_store(name: str, nothing_said: pytest.MonkeyPatch) -> None:
    for placed in ("lake", "landing", "restricted", "released"):
        nothing_said.setenv(f"SLUICE_{placed.upper()}", f"s3a://bucket/{placed}")
        assert str(getattr(Settings.current(), placed)).startswith("s3://bucket")
    nothing_said.setenv(f"SLUICE_{name.upper()}", "s3://bucket/x")
    with pytest.raises(UsageError, match=f"SLUICE_{name.upper()} is 's3://bucket/x': it must be a folder of a disk"):
        Settings.current()


@pytest.mark.parametrize("name", ["restricted", "released"])
def test_what_spark_writes_is_on_a_store_only_if_the_lake_is(name: str, nothing_said: pytest.MonkeyPatch) -> None:
    nothing_said.setenv(f"SLUICE_{name.upper()}", f"s3://bucket/{name}")
    with pytest.raises(UsageError, match=f"SLUICE_{name.upper()} is on a store and the lake is not"):
        Settings.current()
    nothing_said.setenv("SLUICE_LAKE", "s3://bucket/lake")
    assert str(getattr(Settings.current(), name)) == f"s3://bucket/{name}"
