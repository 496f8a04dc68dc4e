"""`sluice stop`, and who writes to a pipeline now."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

from sluice.cli.printing import PipelineName, console
from sluice.settings import Settings, known_pipeline

_CLOCKS_DIFFER = 2.0


@dataclass(frozen=True)
class Holder:
    """The process that holds a pipeline's lease."""

    run: str
    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"run {self.run} (process {self.pid} on {self.host}, since {self.since})"


def holder(settings: Settings, pipeline: str) -> Holder | None:
    """Who holds the lease, or None: where the process that last described itself has ended, nobody does."""
    try:
        told = json.loads((Path(settings.bookkeeping(pipeline)) / "lease.json").read_text())
        found = Holder(str(told["run"]), int(told["pid"]), str(told["host"]), str(told["since"]))
    except (OSError, ValueError, KeyError):
        return None
    return found if _lives(found) else None


def stop(pipeline: PipelineName) -> None:
    """Ask a pipeline's run to stop. It does so before its next batch."""
    settings = Settings.current()
    found = holder(settings, known_pipeline(settings, pipeline))
    if found is None:
        console().print(f"Nothing runs on '{pipeline}'.")
        return
    request = settings.stop_request(pipeline, found.run)
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    console().print(f"Asked {found} to stop. It does so before its next batch; what is committed stays, the next run goes on.")


def _lives(found: Holder) -> bool:
    """Whether it is that process: one that began after the lease was taken only has its number. Other hosts are believed."""
    if found.host != socket.gethostname():
        return True
    try:
        process = psutil.Process(found.pid)
        began = float(process.create_time())
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    return not ended and began <= datetime.fromisoformat(found.since).timestamp() + _CLOCKS_DIFFER
