"""A real Hive metastore on a real PostgreSQL, both on this machine's loopback: PySpark's own jars have the metastore's classes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fetched_jars import JAVA, fetch_jars, jars_folder, spark_home
from tests.system.deployment import end_process, postgres_program
from tests.waiting import patient_deadline

from orchestration.server.free_ports import find_free_port
from orchestration.server.home import LOOPBACK

_LIST = "metastore-jars"
_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m")
_OPENED = ("java.net", "java.lang", "java.util")


class Metastore:
    """A metastore, which runs between start() and stop(); what it holds stays, since PostgreSQL has it."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder, self.port, self._database = folder, find_free_port(), database
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"thrift://{LOOPBACK}:{self.port}"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def start(self) -> None:
        """Start it unless it runs."""
        if self._process is not None:
            return
        said = {
            "javax.jdo.option.ConnectionURL": self._database,
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": "hive",
            "javax.jdo.option.ConnectionPassword": "hive",
            "datanucleus.connectionPoolingType": "HikariCP",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": self.warehouse.as_uri(),
            "hive.async.log.enabled": "false",  # it needs a library that PySpark does not ship
        }
        conf = [part for name, value in said.items() for part in ("--hiveconf", f"{name}={value}")]
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        classes = f"{jars_folder(_LIST)}/*:{spark_home()}/jars/*"
        program = [JAVA, *_FLAGS, *opened, "-cp", classes, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)]
        with (self.folder / "metastore.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*program, *conf], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        _wait_for_port(self.port, self._process, self.folder / "metastore.log")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            end_process(self._process, 120)
            self._process = None


def prepared() -> Iterator[Metastore]:
    """A metastore for a fixture, which is not started yet.

    Where PostgreSQL or the driver's jar cannot be had the tests are skipped, which says why; in CI they fail.
    """
    why = fetch_jars(_LIST)
    if postgres_program("initdb") is None:
        why = "PostgreSQL's server is not installed: initdb is neither on PATH nor in /usr/lib/postgresql"
    if why:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    # Not in pytest's folder: PostgreSQL runs as another user, who may not look into that.
    folder = Path(tempfile.mkdtemp(prefix="sluice-metastore-"))
    folder.chmod(0o755)
    try:
        with _running_postgres(folder) as database:
            metastore = Metastore(folder, database)
            try:
                yield metastore
            finally:
                metastore.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running_postgres(folder: Path) -> Iterator[str]:
    """A server with an empty database, whose address for Java it gives."""
    home, port, user = folder / "postgres", find_free_port(), []
    home.mkdir(mode=0o700)
    if os.getuid() == 0:  # the server refuses to be root
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(home, "postgres", "postgres")
    initdb, postgres = str(postgres_program("initdb")), str(postgres_program("postgres"))
    data = ["-D", str(home / "data")]
    made = [*user, initdb, *data, "--username=hive", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
    subprocess.run(made, cwd=home, capture_output=True, check=True)
    single = [*user, postgres, "--single", *data, "postgres"]
    subprocess.run(single, input=b"CREATE DATABASE metastore\n", cwd=home, capture_output=True, check=True)
    listens = ["-c", f"listen_addresses={LOOPBACK}", "-c", f"port={port}", "-c", "fsync=off", "-k", str(home)]
    log = folder / "postgres.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*user, postgres, *data, *listens], cwd=home, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        _wait_for_port(port, server, log)
        yield f"jdbc:postgresql://{LOOPBACK}:{port}/metastore"
    finally:
        server.send_signal(signal.SIGINT)  # it does not wait for connections
        end_process(server, 120)


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    deadline = patient_deadline(seconds)
    while True:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
