"""Ctrl-C and SIGTERM as requests to stop: the first ends a run at the next batch's boundary, the second at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.runs import job

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def as_stop_requests(settings: Settings, asked: job.Request, name: str) -> Iterator[None]:
    """Start the process's Spark session and take both signals as requests to stop this run, as `sluice stop` writes them.

    A request is taken away when the run has ended.
    """
    from sluice import session
    from sluice.runs.lease import lake_format

    request = settings.stop_request(asked.pipeline, asked.run)

    def heard(number: int, frame: Any) -> None:
        if request.exists():
            # Not an exception: it would wait for the flows' threads. Whatever a killed run leaves, the next one goes on from.
            os._exit(128 + number)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.touch()
        print("Stopping at the next batch's boundary. Once more ends it at once.", file=sys.stderr, flush=True)

    lake_format.check(settings, asked.pipeline)
    session.start(settings, name)  # it has a handler of its own, which is replaced here
    ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, heard) for number in _SIGNALS} if ours else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        request.unlink(missing_ok=True)
