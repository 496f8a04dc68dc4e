"""YARN on this machine: a ResourceManager and a NodeManager as plain processes, from the jar that Hadoop makes for tests.

Its containers have nothing of this process: only the variables that the node gives them, as a machine has its role.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil

from orchestration.server.free_ports import find_free_ports
from orchestration.server.home import LOOPBACK
from orchestration.server.supervisor import find_session_members
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment

JARS = "yarn-jars"
_PYSPARK_HAS = ("hadoop-client-api-*", "hadoop-client-runtime-*", "slf4j-*", "log4j-*", "jul-*", "jcl-*", "jakarta*", "commons-*")
_SERVERS = {
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
_START_SECONDS = 900


class YarnCluster:
    """A ResourceManager with one node, from `with` to its end. variables: what the node gives to every container, such as a store's."""

    def __init__(self, settings: Settings, folder: Path, variables: Mapping[str, str]) -> None:
        self._settings, self.folder, self._variables = settings, folder, dict(variables)
        self._ports = find_free_ports(8)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """An answer of the ResourceManager's REST API."""
        return f"http://{LOOPBACK}:{self._ports[0]}"

    @property
    def conf(self) -> Path:
        """The submitter's HADOOP_CONF_DIR."""
        return self.folder / "conf"

    def __enter__(self) -> YarnCluster:
        self._write_conf()
        spark = Path(build_spark_environment(self._settings)["SPARK_HOME"]) / "jars"
        jars = [str(jar) for pattern in _PYSPARK_HAS for jar in sorted(spark.glob(pattern))]
        own = [str(self.conf), str(self._settings.state / JARS / "*")]
        try:
            for name, main in _SERVERS.items():
                with (self.folder / f"{name}.log").open("wb") as log:
                    self.processes[name] = subprocess.Popen(
                        ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", os.pathsep.join([*own, *jars]), main],
                        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **self._variables},
                        cwd=self.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
            self._wait_for_node()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def list_applications(self) -> list[dict[str, Any]]:
        """What the ResourceManager says about each application, oldest first."""
        found = (self._ask("apps").get("apps") or {}).get("app") or []
        return sorted(found, key=lambda one: int(one["startedTime"]))

    def kill_driver(self) -> list[str]:
        """Kill the driver that runs: its JVM and its Python, and the shell that started them. Returns their names.

        All of them stand still before the first is killed: none is to see the end of another, and to say something of it.
        """
        stopped: list[psutil.Process] = []
        for process in self._find_driver():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                stopped.append(process)
        names = [process.name() for process in stopped]
        for process in stopped:
            process.kill()
        return names

    def _find_driver(self) -> list[psutil.Process]:
        members = find_session_members_of_tree(self.processes["nodemanager"].pid)
        found = [one for one in members if any("deploy.yarn.ApplicationMaster" in word for word in _command(one))]
        for jvm in list(found):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += jvm.children(recursive=True)
        return found

    def read_logs(self) -> str:
        """What all containers wrote."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("nm-logs/**/std*")))

    def stop(self) -> None:
        """Stop both with all that they started."""
        members = [one for process in self.processes.values() for one in find_session_members_of_tree(process.pid)]
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(members, 10)
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        self.processes.clear()

    def _ask(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.address}/ws/v1/cluster/{what}", timeout=120) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def _wait_for_node(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError, ValueError):
                nodes = (self._ask("nodes").get("nodes") or {}).get("node") or []
                if [one for one in nodes if one["state"] == "RUNNING"]:
                    return
            for name, process in self.processes.items():
                assert process.poll() is None, f"YARN's {name} ended: {(self.folder / f'{name}.log').read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"YARN did not start: see {self.folder}"
            time.sleep(0.3)

    def _write_conf(self) -> None:
        web, client, scheduler, tracker, admin, node, localizer, node_web = (f"{LOOPBACK}:{port}" for port in self._ports)
        manager, of_node = "yarn.resourcemanager", "yarn.nodemanager"
        said = {
            f"{manager}.webapp.address": web,
            f"{manager}.address": client,
            f"{manager}.scheduler.address": scheduler,
            f"{manager}.resource-tracker.address": tracker,
            f"{manager}.admin.address": admin,
            f"{manager}.scheduler.class": f"org.apache.hadoop.{manager.replace('yarn.', 'yarn.server.')}.scheduler.fifo.FifoScheduler",
            f"{of_node}.address": node,
            f"{of_node}.localizer.address": localizer,
            f"{of_node}.webapp.address": node_web,
            f"{of_node}.local-dirs": str(self.folder / "nm-local"),
            f"{of_node}.log-dirs": str(self.folder / "nm-logs"),
            f"{of_node}.resource.memory-mb": "12000",
            f"{of_node}.resource.cpu-vcores": "8",
            f"{of_node}.vmem-check-enabled": "false",
            f"{of_node}.pmem-check-enabled": "false",
            f"{of_node}.disk-health-checker.enable": "false",
            f"{of_node}.env-whitelist": ",".join(("JAVA_HOME", *self._variables)),
            "yarn.scheduler.minimum-allocation-mb": "256",
        }
        self.conf.mkdir(parents=True)
        _write_properties(self.conf / "yarn-site.xml", said)
        _write_properties(
            self.conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.folder / "hadoop-tmp")}
        )


def find_session_members_of_tree(pid: int) -> list[psutil.Process]:
    """A process's children, at any depth, and those of its session: YARN's containers are in sessions of their own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [*psutil.Process(pid).children(recursive=True), *find_session_members(pid)]
    return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _write_properties(path: Path, said: Mapping[str, str]) -> None:
    lines = (f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>" for name, value in said.items())
    path.write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")
