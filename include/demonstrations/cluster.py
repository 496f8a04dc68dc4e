"""`make run-cluster`: the tour, its Spark jobs on a standalone cluster of two workers, which runs on this machine for it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from rich.console import Console

from demonstrations.tour import run_tour
from orchestration.server.home import LOOPBACK
from orchestration.server.standalone_cluster import StandaloneCluster
from sluice.cli.printing import escaping_console
from sluice.errors import SluiceError
from sluice.settings import Settings


def run_tour_on_cluster(settings: Settings, console: Console, name: str) -> None:
    """Start a master and two workers, run the tour through them, and stop them either way. Raises SluiceError as the tour does."""
    folder = settings.state / "cluster"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with StandaloneCluster(settings, folder) as cluster:
            console.print(f"Spark is at {cluster.master}: two workers, each with its own working folder and local disk.")
            console.print(f"They share the disk of the lake with the driver, and nothing of this checkout: {folder}")
            os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(cluster.connection)
            os.environ["SPARK_LOCAL_IP"] = LOOPBACK  # the driver's address, too
            run_tour(settings, console, name, None)
            finished = cluster.read_state()["completedapps"]
            console.print(f"\n{len(finished)} applications ran on the cluster.")
            if not finished or any(app["state"] != "FINISHED" for app in finished):
                raise SluiceError(f"Not all applications on the cluster finished; what they printed is in {folder}.")
    finally:
        _remove_working_folders(folder)


def _remove_working_folders(folder: Path) -> None:
    """What executors print may quote rows; blocks hold them."""
    for place in folder.glob("worker-*"):
        for name in ("work", "local", "tmp"):
            shutil.rmtree(place / name, ignore_errors=True)


if __name__ == "__main__":
    try:
        run_tour_on_cluster(Settings.current(), escaping_console(), sys.argv[1])
    except SluiceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
