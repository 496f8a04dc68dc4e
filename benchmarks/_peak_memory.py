"""The highest memory of a process and of all processes that it starts, while a block runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]  # it ships no types

EVERY = 0.5
"""Seconds between two looks. A peak that is shorter may be missed."""


@dataclass
class PeakMemory:
    """Resident bytes at their highest: of the largest process, and of all together (pages that they share count in each)."""

    largest: int = 0
    together: int = 0


@contextlib.contextmanager
def watch_peak_memory() -> Iterator[PeakMemory]:
    """Look at the processes that this one has started, JVMs and Python workers too, as long as the block runs."""
    found, ended = PeakMemory(), threading.Event()
    thread = threading.Thread(target=_watch_until, args=(found, ended), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _watch_until(found: PeakMemory, ended: threading.Event) -> None:
    while not ended.wait(EVERY):
        sizes = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                sizes.append(process.memory_info().rss)
        found.largest, found.together = max([found.largest, *sizes]), max(found.together, sum(sizes))
