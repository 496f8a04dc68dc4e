"""Set-up: pins, jars, the compose file and the make targets say the same thing everywhere."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sluice import doctor

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "spark_jobs" / "conf"
LISTS = ["requirements-build", "requirements", "requirements-airflow2", "requirements-sbom"]
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", re.MULTILINE)
_NAME = re.compile(r"^([A-Za-z0-9_.-]+)", re.MULTILINE)


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _requirements_here() -> str:
    """Those that this environment was made from: each line of Airflow has its own."""
    return f"requirements{'-airflow2' if version('apache-airflow').startswith('2.') else ''}.txt"


@pytest.mark.parametrize("line", ["requirements", "requirements-airflow2"])
def test_every_pin_that_people_edit_is_the_compiled_one(line: str) -> None:
    compiled = dict(_PIN.findall(_read(f"{line}.txt")))
    edited = _read(f"{line}.in")
    assert set(_NAME.findall(edited)) <= set(compiled), "make requirements was forgotten"
    for name, pin in _PIN.findall(edited):
        assert compiled[name] == pin, name


def test_both_lines_of_airflow_run_the_same_spark() -> None:
    first, second = (dict(_PIN.findall(_read(f"{line}.in"))) for line in ("requirements", "requirements-airflow2"))
    assert first.keys() == second.keys()
    assert {name for name, pin in first.items() if second[name] != pin} == {"apache-airflow"}


@pytest.mark.parametrize("line", LISTS)
def test_requirements_are_compiled_for_both_pythons_with_hashes_and_with_a_date(line: str) -> None:
    command = _read(f"{line}.txt").splitlines()[1]
    assert "--universal --generate-hashes --python-version 3.11 --exclude-newer" in command


@pytest.mark.parametrize("line", LISTS)
def test_every_package_is_pinned_by_checksum(line: str) -> None:
    entries = re.split(r"^(?=[A-Za-z0-9])", _read(f"{line}.txt"), flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.split()[0] for entry in entries if not (_PIN.match(entry) and "--hash=sha256:" in entry)] == []


def test_set_up_takes_nothing_without_its_checksum_and_builds_with_nothing_else() -> None:
    commands = subprocess.run(["make", "-Bn", "setup-python"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = re.findall(r"-m pip install (.*?);", commands)
    assert len(installs) == 3
    for install in installs:
        assert "--no-deps" in install or "--require-hashes" in install, install
        assert "--no-build-isolation" in install or "requirements-build.txt" in install, install


def test_what_builds_packages_is_pinned_in_one_version() -> None:
    asked = tomllib.loads(_read("pyproject.toml"))["build-system"]["requires"]
    assert asked == [f"{name}=={pin}" for name, pin in _PIN.findall(_read("requirements-build.txt"))]


def test_this_environment_is_the_pinned_one() -> None:
    for name in (
        "apache-airflow",
        "apache-airflow-providers-apache-spark",
        "pyspark",
        "delta-spark",
        "ruff",
        "mypy",
    ):
        assert version(name) == dict(_PIN.findall(_read(_requirements_here())))[name], name


def test_pyspark_and_its_client_which_share_files_are_of_one_version() -> None:
    compiled = dict(_PIN.findall(_read(_requirements_here())))
    assert compiled["pyspark"] == compiled["pyspark-client"] == version("pyspark")


def _jars_named(jars: str) -> set[str]:
    dependencies = ElementTree.parse(CONF / f"{jars}.xml").getroot().iter("dependency")
    return {f"{one.get('name')}-{one.get('rev')}.jar" for one in dependencies}


@pytest.mark.parametrize("jars", ["delta-jars", "s3-jars", "log-store-compiler"])
def test_the_jars_named_are_those_with_checksums(jars: str) -> None:
    summed = {line.split()[1] for line in (CONF / f"{jars}.sha256").read_text(encoding="ascii").splitlines()}
    assert _jars_named(jars) == summed


def test_the_delta_jars_fit_the_python_package() -> None:
    assert len(_jars_named("delta-jars")) == 5
    assert all(name.endswith(f"-{version('delta-spark')}.jar") for name in _jars_named("delta-jars"))


def test_the_jars_for_s3_fit_the_hadoop_of_pyspark_and_bring_nothing_that_it_has() -> None:
    spark = find_spec("pyspark")
    assert spark and spark.origin
    of_spark = {
        re.sub(r"-[0-9][^-]*\.jar$", "", one.name): one.name for one in (Path(spark.origin).parent / "jars").glob("*.jar")
    }
    hadoop = of_spark["hadoop-client-api"].removeprefix("hadoop-client-api")
    named = _jars_named("s3-jars")
    assert f"hadoop-aws{hadoop}" in named
    assert not {re.sub(r"-[0-9][^-]*\.jar$", "", one) for one in named} & set(of_spark)


@pytest.mark.parametrize("folder", doctor.JARS)
def test_fetched_jars_have_their_checksums(folder: str) -> None:
    jars = ROOT / ".sluice" / folder
    if not jars.is_dir():
        pytest.skip(f"{folder} have not been fetched: make setup-store")
    check = doctor.check_jars(jars, CONF / f"{doctor.JARS[folder]}.sha256")
    assert check.ok, str(check)


def test_help_tells_every_promised_target() -> None:
    told = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("run", "setup-store", "test", "test-all", "up", "down", "lint", "bench", "sbom", "clean", "help"):
        assert f"make {target} " in told, target


@pytest.mark.parametrize("target", ["run", "test"])
def test_another_airflow_line_is_refused_in_one_line(target: str) -> None:
    told = subprocess.run(["make", target, "AIRFLOW=4"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "AIRFLOW is '4'; expected 3 (which it is by itself) or 2." in told.stderr
    assert "pytest" not in told.stdout


def test_a_python_that_does_not_run_is_refused_with_what_to_do(tmp_path: Path) -> None:
    shim = tmp_path / "python3.11"
    shim.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    told = subprocess.run(["make", "machine", f"PYTHON={shim}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert str(shim) in told.stderr
    assert "PYTHON=/its/path" in told.stderr


def test_packages_and_lint_roots_are_the_same() -> None:
    project = tomllib.loads(_read("pyproject.toml"))
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages == {file.parent.name for file in (ROOT / "include").glob("*/__init__.py")} | {"pipelines"}
    assert packages <= set(project["tool"]["importlinter"]["root_packages"])
