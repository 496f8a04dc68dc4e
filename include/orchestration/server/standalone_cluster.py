"""A standalone Spark cluster on this machine: a master and workers as plain processes, from PySpark's own package.

For `make run-cluster` and tests. Workers get nothing of the checkout: neither its folder nor its path nor its variables. Each has its own
working folder and its own local disk; jars are copied for them, as an image would hold them. They do get the variables of the AWS tools, by
which they reach a store, as a machine has its role. Anybody who reaches the master's port can run code on the workers, so all of them listen
only on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types

from orchestration.server.home import LOOPBACK
from orchestration.server.supervisor import find_session_members
from sluice.errors import SluiceError
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment

_KEPT = ("HOME", "JAVA_HOME", "LANG", "PATH")
_OF_STORES = "AWS_"
_JARS = ("jars", "log-store", "store-jars")
"""The folders with the jars that Spark needs besides its own; the last two exist once a store is set up."""
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE_AT = re.compile(r"Bound MasterWebUI to .* started at (http://\S+)")
_START_SECONDS = 600
"""Ten times what a slow machine took that ran other tests beside it."""
_STOP_SECONDS = 10


class StandaloneCluster:
    """A master and its workers, for the length of a `with` block. cores, memory: of each worker, in Spark's spelling.

    folder: for their files; it must be empty or missing. before: a command that gets the workers' commands as arguments.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        *,
        workers: int = 2,
        cores: int = 2,
        memory: str = "2g",
        before: Sequence[str] = (),
    ) -> None:
        self._settings, self._folder = settings, folder
        self._workers, self._cores, self._memory, self._before = workers, cores, memory, tuple(before)
        self.master, self._page = "", ""
        """Addresses of the master, for spark-submit, and of its page. It chooses the ports itself: one that was found free may be taken."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def python(self) -> Path:
        """The Python of executors: this one with its packages, but without this checkout's own."""
        return self._folder / "python" / "bin" / "python"

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection that sends jobs here."""
        extra = {"deploy-mode": "client", "spark-binary": "spark-submit", "profile": "standalone"}
        return {"conn_type": "spark", "host": self.master, "extra": {**extra, "executor-python": str(self.python)}}

    def __enter__(self) -> StandaloneCluster:
        try:
            make_executor_image(self._settings, self._folder)
            deploy = "org.apache.spark.deploy"
            self._start("master", (f"{deploy}.master.Master", "--host", LOOPBACK, "--port", "0", "--webui-port", "0"))
            # A worker that finds no master asks again only some seconds later, so the master comes first.
            self._wait_for("the master did not start", self._is_master_listening)
            for number in range(1, self._workers + 1):
                self.start_worker(f"worker-{number}")
            self._wait_for("the workers did not register", self._are_workers_there)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_worker(self, name: str) -> None:
        """Start a worker of this name. It registers with the master by itself, a few seconds later."""
        size = ("--host", LOOPBACK, "--cores", str(self._cores), "--memory", self._memory, "--webui-port", "0")
        work = ("--work-dir", str(self._folder / name / "work"))
        self._start(name, ("org.apache.spark.deploy.worker.Worker", *size, *work, self.master), self._before)

    def read_state(self) -> dict[str, Any]:
        """The master's report on its workers and applications. Raises OSError while it does not answer."""
        with urllib.request.urlopen(f"{self._page}/json/", timeout=60) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def stop(self) -> None:
        """Stop workers and master with all that they started: SIGTERM, then SIGKILL for the rest."""
        members = [one for process in self.processes.values() for one in find_session_members(process.pid)]
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(members, _STOP_SECONDS)
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        for process in self.processes.values():
            process.wait()
        self.processes.clear()

    def _start(self, name: str, arguments: Sequence[str], before: Sequence[str] = ()) -> None:
        node_folder = self._folder / name
        for folder in ("cwd", "local", "tmp"):
            (node_folder / folder).mkdir(parents=True, exist_ok=True)
        spark_home = build_spark_environment(self._settings)["SPARK_HOME"]
        environment = {name: said for name, said in os.environ.items() if name in _KEPT or name.startswith(_OF_STORES)} | {
            "SPARK_HOME": spark_home,
            "SPARK_DIST_CLASSPATH": str(self._folder / "jars" / "*"),
            "SPARK_LOCAL_DIRS": str(node_folder / "local"),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "TMPDIR": str(node_folder / "tmp"),
            "TZ": "UTC",
        }
        with (node_folder / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*before, str(Path(spark_home) / "bin" / "spark-class"), *arguments],
                env=environment,
                cwd=node_folder / "cwd",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _is_master_listening(self) -> bool:
        log = self._read_log("master")
        master, page = _MASTER_AT.search(log), _PAGE_AT.search(log)
        if master and page:
            self.master, self._page = master[1], page[1].rstrip("/")
        return bool(master and page)

    def _are_workers_there(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.read_state()["aliveworkers"] == self._workers)
        return False

    def _wait_for(self, otherwise: str, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not is_reached():
            ended = {name: process.returncode for name, process in self.processes.items() if process.poll() is not None}
            if ended or time.monotonic() > deadline:
                reason = f"these ended, with exit codes: {ended}" if ended else f"{otherwise} within {_START_SECONDS} s"
                ends = (f"{name}: {line}" for name in self.processes for line in self._read_log(name).splitlines()[-8:])
                raise SluiceError(
                    "\n  ".join((f"Spark's cluster is not there: {reason}. Its logs, in {self._folder}, end with:", *ends))
                )
            time.sleep(0.2)

    def _read_log(self, name: str) -> str:
        return (self._folder / name / "log").read_text(encoding="utf-8", errors="replace")


def make_executor_image(settings: Settings, folder: Path) -> None:
    """Put into a folder what an image would hold: `jars`, those of Delta and of stores; and `python`, with the packages of this one."""
    for jars in (settings.state / name for name in _JARS):
        if jars.is_dir():
            shutil.copytree(jars, folder / "jars", dirs_exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "python")], check=True)
    packages = next((folder / "python" / "lib").glob("python3*/site-packages"))
    here = Path(build_spark_environment(settings)["SPARK_HOME"]).parent
    # Python reads no .pth file from a folder with this name, so not the one by which this checkout is installed.
    (packages / "packages.pth").write_text(f"{here}\n", encoding="utf-8")
