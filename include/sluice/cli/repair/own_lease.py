"""A pipeline's lease, held by this process, where a command changes Sluice's records without Spark."""

from __future__ import annotations

import fcntl
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sluice.errors import LeaseHeld
from sluice.runs.lease import holder
from sluice.settings import Settings, require_known_pipeline


@contextmanager
def hold_lease_without_spark(settings: Settings, pipeline: str, what: str, remedy: str) -> Iterator[None]:
    """Hold it: the same lock of the operating system as a job's JVM takes. what: in the name of the run that others see.

    Raises LeaseHeld, with the remedy.
    """
    folder = Path(settings.bookkeeping(require_known_pipeline(settings, pipeline)))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lease.lock").open("a+b") as file:
        try:
            _lock_whole_file(file)
        except OSError:
            found = holder.find_lease_holder(settings, pipeline)
            told = found.held(f"Pipeline '{pipeline}'") if found else f"Pipeline '{pipeline}' is being written by another job."
            raise LeaseHeld(f"{told} {remedy}") from None
        mine = holder.write_lease_description(folder, f"{what}-{uuid.uuid4().hex[:8]}")
        try:
            yield
        finally:
            holder.write_lease_end(folder, mine)


def _lock_whole_file(file: IO[bytes]) -> None:
    """Lock the whole file for as long as it is open. Raises OSError where another process has it.

    Where the system has locks of an open file, one of these: a lock of the process would go when the scan reads this very file and closes it.
    """
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("@hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
