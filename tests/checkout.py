"""A checkout of its own for these tests: the real code by links, its own Airflow home, and a stand-in for spark-submit."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.prepared_home import copy_prepared_home

from orchestration.server.free_ports import find_free_port
from orchestration.server.home import SPARK_CONNECTION, local_airflow_environment
from sluice.settings import Settings

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Checkout:
    settings: Settings
    records: Path
    """Where the stand-in writes what it was told, a JSON line a call."""


def read_notes(records: Path) -> list[dict[str, Any]]:
    """What the stand-in has noted so far. A line that it is still writing does not count."""
    text = records.read_text() if records.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Gives this process the local Airflow's environment. Airflow may be imported only after that."""
    if "airflow.configuration" in sys.modules:
        pytest.fail("A test module imports Airflow at its top, and Airflow reads its settings then: import it in the test.")
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("include", "dags", "spark_jobs", "environments"):
        (root / folder).symlink_to(ROOT / folder)
    binaries = root / "bin"
    binaries.mkdir()
    stand_in = binaries / "spark3-submit"  # the one other name that the provider allows
    stand_in.write_text(f"#!{sys.executable}\n" + (ROOT / "tests" / "airflow" / "stand_in.py").read_text())
    stand_in.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AIRFLOW", "SLUICE_")) and name != "SLUICE_SHARED"]:
            patch.delenv(name)
        patch.setenv("SLUICE_ROOT", str(root))
        patch.setenv("SLUICE_AIRFLOW_PORT", str(find_free_port()))  # another's Airflow may start meanwhile; 8080 is not for tests
        patch.setenv("STAND_IN_RECORDS", str(root / "records.jsonl"))
        settings = Settings.current()
        copy_prepared_home(settings, root)
        patch.setenv("PATH", str(binaries), prepend=os.pathsep)
        connection = {**SPARK_CONNECTION, "extra": {"deploy-mode": "client", "spark-binary": stand_in.name}}
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        for name, value in local_airflow_environment(settings).items():
            patch.setenv(name, value)
        yield Checkout(settings, root / "records.jsonl")
    shutil.rmtree(root, ignore_errors=True)
