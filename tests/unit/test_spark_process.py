"""How the JVM of a process is set up: one that is kept running gets all compilers, and is otherwise as the profile says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sluice import spark_process
from sluice.settings import Settings
from sluice.spark_process import session_conf_with_all_compilers

OPTIONS = "spark.driver.extraJavaOptions"


def test_of_the_profile_only_the_quick_compiler_goes() -> None:
    (options,) = session_conf_with_all_compilers(Settings.current()).values()
    assert options.split() == ["-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC"]


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
