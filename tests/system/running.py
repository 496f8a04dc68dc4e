"""A real Airflow over a checkout of its own: the real code by links, chosen DAG files, real Spark or a stand-in for it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.checkout import read_notes
from tests.waiting import until

from orchestration.rest.client import Client
from orchestration.server.free_ports import find_free_port
from orchestration.server.home import SPARK_CONNECTION, local_airflow_home
from sluice.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Checkout:
    """A checkout. records: how the stand-in was called, one JSON line per call. orders: what it must do."""

    settings: Settings
    records: Path
    orders: Path

    def told(self) -> list[dict[str, Any]]:
        return read_notes(self.records)

    def order(self, **variables: str) -> None:
        partial = self.orders.with_suffix(".partial")
        partial.write_text(json.dumps(variables))
        partial.rename(self.orders)


def make_checkout(
    root: Path, patch: pytest.MonkeyPatch, dags: Mapping[str, Path], *, stand_in: bool, config: str = ""
) -> Checkout:
    """Make the checkout; this process's environment leads to it while `patch` holds. config: of Airflow, as in its airflow.cfg."""
    for folder in ("include", "spark_jobs"):
        (root / folder).symlink_to(ROOT / folder)
    (root / "dags").mkdir()
    for name, file in dags.items():
        (root / "dags" / name).symlink_to(file)
    (root / ".sluice").mkdir()
    (root / ".sluice" / "jars").symlink_to(ROOT / ".sluice" / "jars")
    for name in [name for name in os.environ if name.startswith(("AIRFLOW", "SLUICE_")) and name != "SLUICE_AIRFLOW_PORT"]:
        patch.delenv(name)
    patch.setenv("SLUICE_ROOT", str(root))
    if "SLUICE_AIRFLOW_PORT" not in os.environ:
        patch.setenv("SLUICE_AIRFLOW_PORT", str(find_free_port()))  # another test process starts its Airflow meanwhile
    settings = Settings.current()
    made = Checkout(settings, root / "records.jsonl", root / "orders.json")
    if stand_in:
        _stand_in(root, patch, made)
    folder = local_airflow_home(settings)
    folder.mkdir(parents=True)
    if config:
        (folder / "airflow.cfg").write_text(config)
    return made


def _stand_in(root: Path, patch: pytest.MonkeyPatch, made: Checkout) -> None:
    binary = root / "bin" / "spark3-submit"  # the one other name that the provider allows
    binary.parent.mkdir()
    binary.write_text(f"#!{sys.executable}\n" + (ROOT / "tests" / "airflow" / "stand_in.py").read_text())
    binary.chmod(0o755)
    patch.setenv("PATH", str(binary.parent), prepend=os.pathsep)
    patch.setenv("STAND_IN_RECORDS", str(made.records))
    patch.setenv("STAND_IN_ORDERS", str(made.orders))
    connection = {**SPARK_CONNECTION, "extra": {"deploy-mode": "client", "spark-binary": binary.name}}
    patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def list_paths_below(folder: Path) -> list[Path]:
    """The files and folders below a folder in which processes are at work: `rglob` raises an error when a folder goes while it is walked."""
    return [Path(here, name) for here, folders, files in os.walk(folder) for name in (*folders, *files)]


def unpause(client: Client, *dags: str) -> None:
    """Unpauses the DAGs once they are parsed."""
    for dag in dags:
        until(lambda dag=dag: client.has_dag(dag), what=f"the DAG {dag}")  # type: ignore[misc]
        client.pause(dag, False)


def run_to_end(client: Client, dag: str, conf: dict[str, Any] | None = None, seconds: float = 300) -> str:
    """Trigger a run and wait for its end; its id."""
    run = f"test-{time.time_ns()}"
    client.trigger(dag, run, conf or {})
    ended(client, dag, run, seconds)
    return run


def ended(client: Client, dag: str, run: str, seconds: float = 300) -> str:
    """The state a run ends in."""
    return str(until(lambda: (state := client.run_state(dag, run)) in ("success", "failed") and state, seconds, f"run {run}"))
