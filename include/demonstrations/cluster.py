"""`make run-cluster`: the tour, with its Spark jobs on a standalone cluster of two workers, and all its tables and deliveries on a store.

Cluster and store run on this machine. SLUICE_LAKE names another lake, on a disk that the workers share or on another store.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from demonstrations.store_server import S3Server, running_s3_server
from demonstrations.tour import run_tour
from orchestration.server.home import LOOPBACK
from orchestration.server.standalone_cluster import StandaloneCluster
from sluice.cli.printing import escaping_console
from sluice.errors import SluiceError
from sluice.root_folders import STORE_ROOTS, build_root_variables
from sluice.settings import Settings


def run_tour_on_cluster(settings: Settings, console: Console, name: str) -> None:
    """Start a master and two workers, run the tour on them, and stop them in any case. Raises SluiceError as the tour does."""
    folder = settings.state / "cluster"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    is_store_ours = "SLUICE_LAKE" not in os.environ
    try:
        with ExitStack() as running:
            if is_store_ours:
                server = running.enter_context(running_s3_server(folder / "store.log"))
                _place_on_store(server, folder)
                settings = Settings.current()
                console.print(f"An S3 server is at {server.address}. What it holds is gone at the end.")
            cluster = running.enter_context(StandaloneCluster(settings, folder / "spark"))
            console.print(f"Spark is at {cluster.master}: two workers, each with its own working folder and local disk.")
            console.print(f"They share {settings.lake} and {settings.landing} with the driver, and nothing of this checkout.")
            os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(cluster.connection)
            os.environ["SPARK_LOCAL_IP"] = LOOPBACK  # the driver's address, too
            run_tour(settings, console, name, None)
            finished = cluster.read_state()["completedapps"]
            console.print(f"\n{len(finished)} applications ran on the cluster.")
            if is_store_ours:
                console.print("The store ends now, and its tables with it: `make run` leaves some to look at.")
            if not finished or any(app["state"] != "FINISHED" for app in finished):
                raise SluiceError(f"Not all applications on the cluster finished; what they printed is in {folder}.")
    finally:
        _remove_working_folders(folder)


def _place_on_store(server: S3Server, folder: Path) -> None:
    """Set the variables of this process, and of those that it starts, so that deliveries and tables are on the server."""
    os.environ.update(server.variables())
    os.environ.update(build_root_variables(folder))
    os.environ.update(build_root_variables(f"s3://{server.make_bucket()}", STORE_ROOTS))


def _remove_working_folders(folder: Path) -> None:
    """Remove the executors' folders: their output may quote rows, and blocks hold them."""
    for place in folder.glob("spark/worker-*"):
        for name in ("work", "local", "tmp"):
            shutil.rmtree(place / name, ignore_errors=True)


if __name__ == "__main__":
    try:
        run_tour_on_cluster(Settings.current(), escaping_console(), sys.argv[1])
    except SluiceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
