"""Jars that servers of the tests need, fetched once from Maven Central into .sluice, by lists beside this file.

`python -m tests.fetched_jars LIST` fetches them before a test needs them: of a minute nearly all is waiting for the network.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from sluice.doctor import check_jars

HERE = Path(__file__).resolve().parent
STATE = HERE.parent / ".sluice"
JAVA = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if os.environ.get("JAVA_HOME") else "java"


def jars_folder(name: str) -> Path:
    """Where the jars of a list lie."""
    return STATE / name


def fetch_jars(name: str) -> str | None:
    """Have the jars of tests/NAME.xml in .sluice/NAME, by the Ivy that PySpark ships, as `make setup` has Delta's. Returns why not."""
    jars, checksums = jars_folder(name), HERE / f"{name}.sha256"
    STATE.mkdir(exist_ok=True)
    with (STATE / f"{name}.lock").open("w") as lock:  # two test processes fetch once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if jars.is_dir() and check_jars(jars, checksums).ok:
            return None
        part, cache, log = (STATE / f"{name}.{of}" for of in ("part", "ivy", "ivy.log"))
        for old in (jars, part):
            shutil.rmtree(old, ignore_errors=True)
        try:
            with log.open("wb") as out:
                subprocess.run(_ivy(name, part, cache), stdout=out, stderr=subprocess.STDOUT, check=True, timeout=900)
        except (OSError, subprocess.SubprocessError) as error:
            return f"the jars of {name} could not be fetched from Maven Central ({type(error).__name__}; what Ivy said: {log})"
        finally:
            shutil.rmtree(cache, ignore_errors=True)
        found = check_jars(part, checksums)
        if not found.ok:
            return f"the jars of {name} are not as they should be: {found.found}"
        part.rename(jars)
    return None


def _ivy(name: str, into: Path, cache: Path) -> list[str]:
    (ivy,) = (spark_home() / "jars").glob("ivy-2*.jar")
    mirror = os.environ.get("SLUICE_IVY_SETTINGS")
    settings = ["-settings", mirror] if mirror else []
    retrieve = ["-ivy", str(HERE / f"{name}.xml"), "-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    return [JAVA, "-jar", str(ivy), "-error", *settings, "-cache", str(cache), *retrieve]


def spark_home() -> Path:
    """The folder of the installed PySpark."""
    spark = find_spec("pyspark")
    assert spark and spark.origin
    return Path(spark.origin).parent


if __name__ == "__main__":
    sys.exit(fetch_jars(sys.argv[1]))
