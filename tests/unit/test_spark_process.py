"""What a process that starts Spark is told: profiles, what a store adds, and which compilers its JVM has."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sluice import spark_process
from sluice.errors import UsageError
from sluice.settings import Settings
from sluice.spark_process import (
    LATE_COMPILER,
    build_spark_class_path,
    build_spark_environment,
    find_spark_properties_file,
    session_conf_with_all_compilers,
)

PROFILES = ("local", "standalone", "large", "yarn", "kubernetes")
pytestmark = pytest.mark.usefixtures("nothing_said")
OPTIONS = "spark.driver.extraJavaOptions"


def test_of_the_profile_only_the_quick_compiler_goes_and_the_slow_one_begins_late() -> None:
    (options,) = session_conf_with_all_compilers(Settings.current()).values()
    assert options.split() == [*LATE_COMPILER.split(), "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC"], (
        "a profile's own come last"
    )


@pytest.mark.parametrize(
    "said",
    [
        "",
        f"{OPTIONS}\n",
        f"{OPTIONS}  -XX:+UseG1GC\n",
        f"{OPTIONS} -XX:TieredStopAtLevel=1\n{OPTIONS} -XX:+UseG1GC\n",
        f"# {OPTIONS} -XX:TieredStopAtLevel=1\n",
    ],
)
def test_a_profile_without_it_is_left_as_it_is(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.conf").write_text(said)
    monkeypatch.setattr(spark_process, "find_spark_properties_file", lambda settings: tmp_path / "other.conf")
    assert session_conf_with_all_compilers(replace(Settings.current())) == {}


def properties(settings: Settings) -> dict[str, str]:
    lines = [line for line in find_spark_properties_file(settings).read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(None, 1) for line in lines)


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
