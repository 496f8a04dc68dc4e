"""An S3 server on this machine's loopback, for demonstrations and tests: moto's, in a process of its own. Its data is gone when it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.errors import SluiceError

STORE_PROCESS = Path(__file__).with_name("store_process.py")
ANY_PORT = "0"
"""The process then chooses its port as it binds to it, so nobody can take the port first."""
_SAYS_WHERE = re.compile(r"^The S3 server is at (http://127\.0\.0\.1:\d+)\n", re.MULTILINE)

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a-user-of-tests", "AWS_SECRET_ACCESS_KEY": "told-to-no-one-7f3a"}


@dataclass(frozen=True)
class S3Server:
    """address: of the server, as http://127.0.0.1:PORT."""

    address: str

    def make_bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"tests-{uuid.uuid4().hex[:12]}"
        with urllib.request.urlopen(urllib.request.Request(f"{self.address}/{name}", method="PUT"), timeout=120):
            return name

    def variables(self, address: str = "") -> dict[str, str]:
        """The variables of a process that uses the server. address: of a proxy in front of it."""
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": address or self.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def running_s3_server(log: Path) -> Iterator[S3Server]:
    """Runs a server as long as the block lasts, and ends it by its process id."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(STORE_PROCESS), ANY_PORT],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
    try:
        yield wait_for_s3_server(log, process)
    finally:
        process.kill()
        process.wait(60)


def wait_for_s3_server(log: Path, process: subprocess.Popen[bytes] | None = None, seconds: float = 600) -> S3Server:
    """Returns the server that STORE_PROCESS runs, once it listens. Raises SluiceError if it does not in time.

    log: what the process prints, and nothing of another one. process: the wait ends early if this process ends.
    """
    deadline = time.monotonic() + seconds
    while (process is None or process.poll() is None) and time.monotonic() < deadline:
        if said := _SAYS_WHERE.search(log.read_text(errors="replace") if log.exists() else ""):
            return S3Server(said[1])
        time.sleep(0.05)
    raise SluiceError(f"The S3 server did not start. The end of its output:\n{log.read_text(errors='replace')[-3000:]}")
