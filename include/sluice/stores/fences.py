"""Until when this process may write below a folder of a store: for as long as its lease surely holds there, by its own clock.

Spark's side of it is in the log store (spark_jobs/java), which asks before each PUT. delta-rs calls nobody before its PUT. So a commit
through it asks here after its table was opened, and is not tried again at a later version: whoever takes a lost lease over makes a
commit of his own on each table first, with which an older handle's commit collides.
"""

from __future__ import annotations

import threading
import time

from sluice.errors import LeaseLost

_LOCK = threading.Lock()
_OPEN_UNTIL: dict[str, float] = {}


def read_fence_clock() -> float:
    """The seconds of a clock that nobody sets, and that goes on while the process is stopped or the machine sleeps, if the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def open_fence(root: str, seconds: float) -> None:
    """Let commits below the root, which `split_store_url` would give joined, pass for so long from now."""
    with _LOCK:
        _OPEN_UNTIL[root.rstrip("/") + "/"] = read_fence_clock() + seconds


def close_fence(root: str) -> None:
    """Let no commit below the root pass any more."""
    open_fence(root, 0)


def remove_fence(root: str) -> None:
    """Take the fence away: a lease that was given up in order guards nothing any more."""
    with _LOCK:
        _OPEN_UNTIL.pop(root.rstrip("/") + "/", None)


def require_open_fences(url: str) -> None:
    """Raises LeaseLost if the URL, as a root, is behind a fence that is closed."""
    with _LOCK:
        closed = [root for root, until in _OPEN_UNTIL.items() if f"{url}/".startswith(root) and read_fence_clock() >= until]
    if closed:
        raise LeaseLost(f"The lease on {closed[0]} is lost, or could not be renewed in time. Nothing was committed. Run again.")
