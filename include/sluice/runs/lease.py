"""The lease: one writer a pipeline at a time.

Two drivers that commit to one Delta table on a local disk can lose commits in silence. So the JVM that commits holds an operating
system's lock for as long as it lives. POSIX locks belong to a process and a file: opening and closing the file once more would drop
the lock, so the lock file is opened once and holds nothing; who holds it stands in a file beside it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.errors import LeaseHeld, UsageError
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_AGAIN = 0.5


@contextmanager
def held(settings: Settings, session: SparkSession, pipeline: str, run: str, wait: float) -> Iterator[None]:
    """Hold a pipeline's lease. wait: how many seconds to wait for it. Raises LeaseHeld, saying by whom it is held."""
    if "://" in settings.lake:
        raise UsageError(
            f"The lake {settings.lake} is on an object store, where commits of two drivers get lost. Use a local disk."
        )
    remedy = "Run again when it has ended, or give --wait SECONDS."
    with held_at(Path(settings.bookkeeping(pipeline)), session, run, wait, f"Pipeline '{pipeline}'", remedy):
        yield


@contextmanager
def held_at(folder: Path, session: SparkSession, run: str, wait: float, what: str, remedy: str) -> Iterator[None]:
    """Hold the lease whose lock file lies in the folder. what, remedy: for the error. Raises LeaseHeld as `held` does."""
    folder.mkdir(parents=True, exist_ok=True)
    jvm: Any = session._jvm
    file = jvm.java.io.RandomAccessFile(str(folder / "lease.lock"), "rw")
    try:
        until = time.monotonic() + wait
        while _try(file) is None:
            if time.monotonic() >= until:
                raise LeaseHeld(f"{what} is being written by {_holder(folder)}. {remedy}")
            time.sleep(_LOOK_AGAIN)
        _describe(folder, run)
        yield
    finally:
        file.close()


def _try(file: Any) -> Any:
    from py4j.protocol import Py4JJavaError

    try:
        return file.getChannel().tryLock()
    except Py4JJavaError as error:
        if "OverlappingFileLockException" in str(error.java_exception.getClass().getName()):
            return None
        raise


def _describe(folder: Path, run: str) -> None:
    holder = {
        "run": run,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    temporary = folder / ".lease.json.tmp"
    temporary.write_text(json.dumps(holder))
    temporary.replace(folder / "lease.json")


def _holder(folder: Path) -> str:
    try:
        holder = json.loads((folder / "lease.json").read_text())
    except (OSError, ValueError):
        return "another job"
    return f"run {holder['run']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"
