"""Environments and Spark profiles: one variable chooses, another may differ, a wrong name is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.spark_submit.job_code import job_code_to_ship, write_job_code_zip
from sluice.errors import UsageError
from sluice.settings import Settings
from sluice.spark_process import build_spark_class_path, build_spark_environment, find_spark_properties_file

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ("local", "standalone", "large", "yarn", "kubernetes")


@pytest.fixture(autouse=True)
def nothing_said() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            patch.delenv(name)
        yield patch


@pytest.fixture
def root(tmp_path: Path, nothing_said: pytest.MonkeyPatch) -> Path:
    """A checkout whose environments may be changed."""
    shutil.copytree(ROOT / "environments", tmp_path / "environments")
    (tmp_path / "spark_jobs").symlink_to(ROOT / "spark_jobs")
    (tmp_path / "include").symlink_to(ROOT / "include")
    nothing_said.setenv("SLUICE_ROOT", str(tmp_path))
    return tmp_path


def properties(settings: Settings) -> dict[str, str]:
    lines = [line for line in find_spark_properties_file(settings).read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(None, 1) for line in lines)


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
        places += [str(getattr(settings, place)) for place in ("lake", "landing", "secrets", "restricted", "truth", "vault")]
    assert len(places) == len(set(places)) == 18


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
        ('lake = "lake"', "", "'lake' must be said"),
        ('lake = "lake"', "lake = 7", "'lake' must be said, as a text"),
        ('profile = "local"', 'profil = "local"', "there is no setting 'spark.profil'. Did you mean 'profile'?"),
        ("[spark]", "[[spark]]", "'spark.profile' must be said"),
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


def test_profiles_differ_where_they_say_so_and_nowhere_else(root: Path) -> None:
    settings = Settings.current()
    assert set(settings.spark_profiles()) == set(PROFILES)
    common = properties(settings)
    assert find_spark_properties_file(settings) == root / "spark_jobs" / "conf" / "spark-defaults.conf", "nothing is put together"
    for profile in PROFILES[1:]:
        own = (settings.spark_conf / f"{profile}.conf").read_text().splitlines()
        differs = dict(line.split(None, 1) for line in own if line and not line.startswith("#"))
        assert {name for name, value in differs.items() if common.get(name) == value} == set(), "said twice"
        assert properties(replace(settings, spark_profile=profile)) == common | differs


def test_a_profile_is_put_together_again_only_when_it_changed(root: Path) -> None:
    settings = replace(Settings.current(), spark_profile="large")
    first = find_spark_properties_file(settings)
    at = first.stat().st_mtime_ns
    assert find_spark_properties_file(settings).stat().st_mtime_ns == at
    first.write_text("spark.sql.ansi.enabled false\n")
    assert properties(settings)["spark.sql.ansi.enabled"] == "true"


def test_only_the_executors_of_a_cluster_reach_the_driver(nothing_said: pytest.MonkeyPatch) -> None:
    assert build_spark_environment(Settings.current())["SPARK_LOCAL_IP"] == "127.0.0.1"
    nothing_said.setenv("SLUICE_SPARK_MASTER", "spark://somewhere:7077")
    environment = build_spark_environment(Settings.current())
    assert "SPARK_LOCAL_IP" not in environment
    assert "--master spark://somewhere:7077" in environment["PYSPARK_SUBMIT_ARGS"]


def test_job_code_is_shipped_to_a_cluster_only(root: Path) -> None:
    settings = Settings.current()
    assert job_code_to_ship(settings) is None
    shipped_to = job_code_to_ship(replace(settings, spark_master="spark://somewhere:7077"))
    assert shipped_to is not None
    assert shipped_to.is_relative_to(root / ".sluice")


def test_the_code_that_is_shipped_needs_no_other_package_of_include(root: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(write_job_code_zip(Settings.current()))!r}); "
        "import sluice.runs.job, sluice.runs.erasing, sluice.erasure.proof.certificate; "
        "ours = [one for one in sys.modules.values() if hasattr(one, '__path__') and '/include/' in str(getattr(one, '__file__', ''))]; "
        "sys.exit(str(ours) if ours else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_zip_is_named_after_its_content_and_holds_code_alone(root: Path) -> None:
    (root / "include").unlink()
    for package in ("sluice", "residue", "pipelines"):
        shutil.copytree(ROOT / "include" / package, root / "include" / package)
    (root / "include" / "sluice" / "notes.txt").write_text("no code")
    settings = Settings.current()
    first = write_job_code_zip(settings)
    content = first.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {"sluice/settings.py", "sluice/runs/job.py", "residue/walk.py", "pipelines/gym/pipeline.py"} <= set(names)
    kinds = (".py", "/", "rules.csv")
    assert [name for name in names if not name.endswith(kinds) or name.startswith("orchestration")] == []
    # Of a package without __init__.py as of any other; rule sets are read there, too.
    told = f"import sys; sys.path.insert(0, {str(first)!r}); import pipelines.gym.silver as s; print(s.__file__, len(s.RULES.expectations))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, env={"PATH": os.defpath}, check=False)
    assert done.returncode == 0, done.stderr
    file, rules = done.stdout.split()
    assert file.startswith(str(first)) and int(rules) == 3
    for file in (root / "include").rglob("*.py"):
        os.utime(file, (1, 1))
    assert write_job_code_zip(settings) == first, "times do not count"
    with (root / "include" / "sluice" / "errors.py").open("a") as file:
        file.write("\n# changed\n")
    assert write_job_code_zip(settings) != first
    assert first.read_bytes() == content, "a driver that runs reads it yet"


def test_code_in_the_zip_runs_without_the_checkout_on_its_path(root: Path, tmp_path: Path) -> None:
    archive = write_job_code_zip(Settings.current())
    code = "import sluice.settings as s, sluice.declare; print(s.__file__); print(s.Settings.current().root)"
    site = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{code}"],
        env={"SLUICE_ROOT": str(root), "PATH": os.defpath},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert site.returncode == 0, site.stderr
    file, found = site.stdout.split()
    assert file.startswith(str(archive))
    assert found == str(root)


def test_a_lake_on_a_store_adds_its_jars_and_its_settings_to_spark(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = build_spark_environment(Settings.current())
    monkeypatch.setenv("SLUICE_LAKE", "s3://bucket/lake")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "told-to-no-one")
    with pytest.raises(UsageError, match="make setup-store"):
        build_spark_environment(Settings.current())
    for folder in ("jars", "log-store", "store-jars"):
        (root / ".sluice" / folder).mkdir(parents=True, exist_ok=True)
        (root / ".sluice" / folder / "one.jar").touch()
    on_store = build_spark_environment(Settings.current())
    assert on_store["SPARK_DIST_CLASSPATH"].startswith(f"{on_disk['SPARK_DIST_CLASSPATH']}{os.pathsep}")
    said = find_spark_properties_file(Settings.current()).read_text()
    assert "sluice.ConditionalPutLogStore" in said
    assert said.startswith((root / "spark_jobs" / "conf" / "spark-defaults.conf").read_text())
    assert "told-to-no-one" not in said + "".join(on_store.values())


def test_a_lake_that_is_copied_from_a_store_adds_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Settings.current()
    copied, on_store = (replace(there, **{lake: "s3://bucket/lake"}) for lake in ("copied_lake", "lake"))
    assert properties(copied) == properties(on_store) != properties(there)
    with pytest.raises(UsageError, match=r"The lake s3://bucket/lake is on a store"):
        build_spark_class_path(copied)


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
