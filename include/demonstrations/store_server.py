"""An S3 server on this machine's loopback, for demonstrations and tests: moto's, in a process of its own. Its data is gone when it ends."""

from __future__ import annotations

import os
import socket
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

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a-user-of-tests", "AWS_SECRET_ACCESS_KEY": "told-to-no-one-7f3a"}


@dataclass(frozen=True)
class S3Server:
    """address: of the server, as http://127.0.0.1:PORT."""

    address: str

    def make_bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"tests-{uuid.uuid4().hex[:12]}"
        with urllib.request.urlopen(urllib.request.Request(f"{self.address}/{name}", method="PUT"), timeout=30):
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
    for _ in range(3):  # another process may take a free port first
        port = find_free_port()
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("store_process.py")), port],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        try:
            if is_answering(port, process):
                yield S3Server(f"http://127.0.0.1:{port}")
                return
        finally:
            process.kill()
            process.wait(20)
    raise SluiceError(f"The S3 server did not start. The end of its output:\n{log.read_text(errors='replace')[-3000:]}")


def find_free_port() -> str:
    """A free port of the loopback interface."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def is_answering(port: str, process: subprocess.Popen[bytes] | None = None, seconds: float = 60) -> bool:
    """Whether a server answers at a port within this time. process: the wait ends early if this process ends."""
    deadline = time.monotonic() + seconds
    while (process is None or process.poll() is None) and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5):
                return True
        except OSError:
            time.sleep(0.05)
    return False
