"""What docker-compose.yaml and docker-compose.store.yaml describe, as plain processes on loopback: their commands, settings, order
and health checks.

Other than there are addresses, ports and folders, the processes' user, and PostgreSQL's start, which its image does. What the
image sets is read from the Dockerfile. The S3 server is moto's, unless versitygw is on PATH: then that is started as the file says.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from tests.compose_files import read_compose_services
from tests.waiting import patient_deadline

from demonstrations import store_process
from orchestration.server.free_ports import find_free_ports
from orchestration.server.home import LOOPBACK
from orchestration.server.supervisor import find_session_members
from sluice.root_folders import build_root_variables

ROOT = Path(__file__).resolve().parents[2]
PORTS = ("5432", "7070", "7077", "8080", "8081", "8082", "8974")
"""The ports inside of the containers."""
HOSTS = ("postgres", "store", "apiserver", "scheduler", "spark-master")
FOREIGN = ("postgres", "store")
"""Services with an image of somebody else."""

_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
_COPIED = ("include", "spark_jobs", "environments")


def postgres_program(name: str) -> str | None:
    """Where a program of PostgreSQL is; Debian keeps the server's off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    return str(found[-1]) if found else shutil.which(name)


def end_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process that was asked to end; kill it if it does not within this time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Deployment:
    """Starts the services in order, each when what it depends on is as the file says; stops them and all they started.

    files: of Compose. secrets: what .env holds. folder: takes the place of the image's and the volumes' folders.
    """

    def __init__(self, folder: Path, files: tuple[str, ...], secrets: Mapping[str, str], dags: Mapping[str, Path]) -> None:
        self.folder = folder
        self._secrets = secrets
        self.ports = dict(zip(PORTS, find_free_ports(len(PORTS)), strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.root = folder / "sluice"
        for name in ("elsewhere", "data", "airflow", "sluice/dags", "sluice/.sluice", "work", "work-local", "store"):
            (folder / name).mkdir(parents=True)
        for name in _COPIED:
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for name in ("jars", "log-store", "store-jars"):
            (self.root / ".sluice" / name).symlink_to(ROOT / ".sluice" / name)
        for name, file in dags.items():
            (self.root / "dags" / name).symlink_to(file)
        self.services: dict[str, dict[str, Any]] = self._native(read_compose_services(files))
        if "store" in self.services and not shutil.which("versitygw"):
            self.services["store"] |= self._stand_in_for_store()

    def environment(self, service: str) -> dict[str, str]:
        """The environment of a service's processes; from this process's environment only what locates Java and folders."""
        own = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG") if name in os.environ}
        image = {"PATH": os.environ["PATH"]} if service in FOREIGN else self._native(_image_environment())
        return own | image | self._of_this_machine(service) | self.services[service].get("environment", {})

    def start(self, seconds: float = 240) -> None:
        """Start all and wait until all are healthy. Raises AssertionError with the last words of one that is not."""
        deadline = patient_deadline(seconds)
        ready: dict[str, str] = {}
        while len(ready) < len(self.services):
            for name, service in self.services.items():
                if name in ready:
                    continue
                needs = service.get("depends_on", {})
                if name not in self._processes and all(ready.get(other) == need["condition"] for other, need in needs.items()):
                    self._start(name, service)
                if name in self._processes and (state := self._state(name, service)):
                    ready[name] = state
            assert time.monotonic() < deadline, f"not ready: {set(self.services) - set(ready)}\n{self._last_words()}"
            time.sleep(0.3)

    def stop(self) -> None:
        """Stop all: SIGTERM, and SIGKILL to what is left of their sessions after a minute. Returns when these are gone."""
        killed: list[psutil.Process] = []
        # PostgreSQL last, and at once: with SIGINT it does not wait for connections.
        for name, process in reversed(self._processes.items()):
            process.send_signal(signal.SIGINT if name == "postgres" else signal.SIGTERM)
            if name != "postgres":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
            for left in find_session_members(process.pid):
                if name != "postgres":
                    with contextlib.suppress(psutil.NoSuchProcess):
                        left.kill()
                        killed.append(left)
        for process in self._processes.values():
            end_process(process, 60)
        psutil.wait_procs(killed, 60)

    def left(self) -> list[psutil.Process]:
        """What runs of it yet."""
        return [left for process in self._processes.values() for left in find_session_members(process.pid)]

    def _start(self, name: str, service: Mapping[str, Any]) -> None:
        command = self._postgres() if name == "postgres" else [*service.get("entrypoint", ()), *map(str, service["command"])]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env=self.environment(name),
                cwd=self.folder / "elsewhere",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _state(self, name: str, service: Mapping[str, Any]) -> str:
        ended = self._processes[name].poll()
        if "healthcheck" not in service:
            assert not ended, f"{name} ended with {ended}\n{self._last_words(name)}"
            return "service_completed_successfully" if ended == 0 else ""
        assert ended is None, f"{name} ended with {ended}\n{self._last_words(name)}"
        kind, *test = service["healthcheck"]["test"]
        assert kind == "CMD"
        told = subprocess.run(test, env=self.environment(name), cwd=self.folder / "elsewhere", capture_output=True, check=False)
        return "service_healthy" if told.returncode == 0 else ""

    def _postgres(self) -> list[str]:
        """What the image of PostgreSQL does before it starts the server. The server refuses to be root."""
        told = self.services["postgres"]["environment"]
        home = Path(tempfile.mkdtemp(prefix="sluice-postgres-", dir=self.folder))
        (home / "password").write_text(told["POSTGRES_PASSWORD"])
        user = []
        if os.getuid() == 0:
            user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            for path in (home, home / "password"):
                shutil.chown(path, "postgres", "postgres")
        initdb = [*user, str(postgres_program("initdb")), "--pgdata", str(home / "data"), "--username", told["POSTGRES_USER"]]
        initdb += ["--pwfile", str(home / "password"), "--auth-local=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        made = subprocess.run([*initdb, told["POSTGRES_INITDB_ARGS"]], cwd=home, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        server = [*user, str(postgres_program("postgres")), "-D", str(home / "data"), "-k", str(home), "-c", "fsync=off"]
        single = [*user, str(postgres_program("postgres")), "--single", "-D", str(home / "data"), "postgres"]
        subprocess.run(
            single, input=f"CREATE DATABASE {told['POSTGRES_DB']}\n", cwd=home, capture_output=True, text=True, check=True
        )
        return [*server, "-c", f"listen_addresses={LOOPBACK}", "-c", f"port={self.ports['5432']}"]

    def _stand_in_for_store(self) -> dict[str, Any]:
        """How moto's S3 server is started, and asked for its health, in place of the file's."""
        port = self.ports["7070"]
        ask = f"import urllib.request as r; r.urlopen('http://{LOOPBACK}:{port}/moto-api/', timeout=5)"
        return {
            "entrypoint": [sys.executable, "-W", "ignore"],
            "command": [store_process.__file__, port],
            "healthcheck": {"test": ["CMD", sys.executable, "-c", ask]},
        }

    def _of_this_machine(self, service: str) -> dict[str, str]:
        """Addresses and folders that the containers' network and volumes give there."""
        data = self.folder / "data"
        roots = build_root_variables(data)
        return {
            **roots,
            # A container has its own /tmp.
            **({"SPARK_LOCAL_DIRS": str(self.folder / "work-local")} if service == "spark-worker" else {}),
            "SLUICE_SPARK_MASTER": f"spark://{LOOPBACK}:{self.ports['7077']}",
            "SPARK_LOCAL_IP": LOOPBACK,
            "NO_PROXY": LOOPBACK,
            "PGHOST": LOOPBACK,
            "PGPORT": str(self.ports["5432"]),
        }

    def _native(self, said: Any) -> Any:
        """The same with variables filled in, and with this machine's folders, hosts and ports."""
        if isinstance(said, dict):
            return {key: self._native(value) for key, value in said.items()}
        if isinstance(said, list):
            return [self._native(value) for value in said]
        if not isinstance(said, str):
            return said
        text = _VARIABLE.sub(lambda found: self._filled(*found.groups()), said)
        for there, here in (
            ("/opt/sluice/.venv/lib/python3.11", f"{sys.prefix}/lib/python{sys.version_info.major}.{sys.version_info.minor}"),
            ("/opt/sluice/.venv", sys.prefix),
            ("/opt/sluice", str(self.root)),
            ("/opt/airflow", str(self.folder / "airflow")),
            ("/tmp/spark-work", str(self.folder / "work")),
            ("/store/", f"{self.folder}/store/"),
            ("/data/", f"{self.folder}/data/"),
            ("--port :", f"--port {LOOPBACK}:"),
            ("$$", "$"),
        ):
            text = text.replace(there, here)
        hosts, ports = "|".join(HOSTS), "|".join(PORTS)
        text = re.sub(rf"(?<![\w.-])(?:{hosts})(?=:\d)", LOOPBACK, text)
        text = re.sub(rf"(?<=:)(?:{ports})(?!\d)", lambda found: str(self.ports[found.group()]), text)
        return {"0.0.0.0": LOOPBACK, "spark-master": LOOPBACK, **{one: str(self.ports[one]) for one in PORTS}}.get(text, text)

    def _filled(self, name: str, kind: str | None, rest: str | None) -> str:
        value = self._secrets.get(name, "")
        assert value or kind == "-", f"{name}: {rest}"
        return value or rest or ""

    def _last_words(self, *names: str) -> str:
        logs = [self.folder / f"{name}.log" for name in names] or sorted(self.folder.glob("*.log"))
        return "\n".join(f"  {log.stem}: {line}" for log in logs for line in log.read_text(errors="replace").splitlines()[-15:])


def _image_environment() -> dict[str, str]:
    lines = re.findall(r"^ENV (\w+)=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return dict(lines)
