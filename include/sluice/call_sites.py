"""Records the line of code of each operation in a transform, so that an error can name it, and of no other operation.

By itself PySpark tells the JVM the line of every operation on a column or a frame, with four more requests (the session, a property, the
line, and to forget it). An increment does thousands of operations, nearly all the engine's own, whose lines help nobody. PySpark's switch
(spark.python.sql.dataFrameDebugging.enabled) is for all operations or none. It is read once; if there is no session yet, as off.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Recording(threading.local):
    is_on = False


_RECORDING = _Recording()


@contextmanager
def call_sites_recorded() -> Iterator[None]:
    """Lines are recorded in this thread while the block lasts."""
    before, _RECORDING.is_on = _RECORDING.is_on, True
    try:
        yield
    finally:
        _RECORDING.is_on = before


def are_call_sites_recorded() -> bool:
    """Whether lines are recorded in this thread now: what PySpark asks in a session of Sluice, in place of its own switch."""
    return _RECORDING.is_on
