"""doctor: each check against the real thing, a java that is a script, a port that is taken."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice import doctor


def _java(folder: Path, script: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)


@pytest.fixture
def path_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, with no JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_the_java_of_this_machine_is_good() -> None:
    assert doctor.check_java().ok


def test_no_java_is_said_with_what_to_install(path_java: Path) -> None:
    check = doctor.check_java()
    assert not check.ok
    assert "none on PATH" in check.found
    assert "Install Java 17" in check.remedy


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ('openjdk version "11.0.22" 2024-01-16', "11.0.22"),
        ('java version "1.8.0_392"', "8.0_392"),
    ],
)
def test_an_old_java_is_told_by_its_version(path_java: Path, told: str, found: str) -> None:
    _java(path_java, f"echo '{told}' >&2")
    check = doctor.check_java()
    assert not check.ok
    assert check.found.startswith(found)
    assert "17 or later" in check.found


@pytest.mark.parametrize("told", ['openjdk version "17" 2021-09-14', 'openjdk version "25.0.1" 2025-10-21'])
def test_a_new_java_is_good(path_java: Path, told: str) -> None:
    _java(path_java, f"echo '{told}' >&2")
    assert doctor.check_java().ok


def test_a_java_that_is_there_and_fails_is_not_good(path_java: Path) -> None:
    _java(path_java, "exit 127")
    check = doctor.check_java()
    assert not check.ok
    assert "127" in check.found


def test_java_home_wins_over_path_as_in_spark(path_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(path_java, "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(path_java / "nowhere"))
    check = doctor.check_java()
    assert not check.ok
    assert "JAVA_HOME" in check.found


def test_a_taken_port_is_named_and_a_free_one_is_free(taken_port: int) -> None:
    (check,) = doctor.check_ports([taken_port])
    assert not check.ok
    assert f"127.0.0.1:{taken_port} is in use" in check.found
    assert "SLUICE_AIRFLOW_PORT" in check.remedy


def test_a_free_port_is_free() -> None:
    # One of these: below those that the kernel and `free_ports` give to other programs meanwhile.
    assert any(check.ok for check in doctor.check_ports(range(13_000, 13_020)))


def test_a_port_that_was_asked_for_must_be_free_and_no_other_need(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "AIRFLOW_PORT", taken_port)
    monkeypatch.delenv("SLUICE_AIRFLOW_PORT", raising=False)
    check = doctor.check_airflow_port()
    assert check.ok
    assert "takes another" in check.found
    monkeypatch.setenv("SLUICE_AIRFLOW_PORT", str(taken_port))
    assert not doctor.check_airflow_port().ok


@pytest.mark.parametrize("told", ["http", "0", "65536", "-1", "80 80"])
def test_a_port_setting_that_is_no_port_is_wrong_use(
    told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_AIRFLOW_PORT", told)
    assert doctor.main(["--port"]) == 2
    assert f"SLUICE_AIRFLOW_PORT is '{told}'" in capsys.readouterr().err


def test_disk_is_measured_against_what_is_needed(tmp_path: Path) -> None:
    assert doctor.check_disk(tmp_path, gigabytes=0).ok
    check = doctor.check_disk(tmp_path, gigabytes=1e9)
    assert not check.ok
    assert str(tmp_path) in check.found


def test_jars_missing_foreign_and_altered_are_each_named(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in ("good", "altered", "foreign"):
        (jars / f"{name}.jar").write_bytes(name.encode())
    sums = tmp_path / "sums"
    digest = hashlib.sha256(b"good").hexdigest()
    sums.write_text("".join(f"{digest}  {name}.jar\n" for name in ("good", "altered", "missing")), encoding="ascii")
    check = doctor.check_jars(jars, sums)
    assert not check.ok
    for said in ("lacks missing.jar", "holds foreign.jar", "holds an altered altered.jar"):
        assert said in check.found
    for name in ("altered", "foreign"):
        (jars / f"{name}.jar").unlink()
    sums.write_text(f"{digest}  good.jar\n", encoding="ascii")
    assert doctor.check_jars(jars, sums).ok


def test_it_runs_alone_before_anything_is_installed(taken_port: int) -> None:
    """Isolated, without site-packages: a module that imports anything but the standard library fails here."""
    told = subprocess.run(
        [sys.executable, "-I", "-S", doctor.__file__, "--port", "--json"],
        env={**os.environ, "SLUICE_AIRFLOW_PORT": str(taken_port)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2, told.stderr
    assert told.stderr.count("\n") == 1, "one line for the one thing that is wrong"
    report = json.loads(told.stdout.splitlines()[-1])
    assert report["ok"] is False
    assert [check["name"] for check in report["checks"] if not check["ok"]] == ["port"]


def test_quiet_prints_nothing_where_all_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
