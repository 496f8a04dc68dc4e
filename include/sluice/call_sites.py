"""Records the line of code of each operation in a user's transform, so that an error can name it, and of no other operation.

By itself PySpark tells the JVM the line of every operation on a column or a frame, with four more requests (the session, a property, the
line, and to forget it). An increment does thousands of operations, nearly all the engine's own, whose lines help nobody. PySpark's switch
(spark.python.sql.dataFrameDebugging.enabled) is for all operations or none. It is read once; if there is no session yet, as off.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class _Recording(threading.local):
    is_on = False


_RECORDING = _Recording()


def call_sites_recorded() -> AbstractContextManager[None]:
    """Lines are recorded in this thread while the block lasts."""
    return _switch_recording(is_on=True)


def call_sites_left_out() -> AbstractContextManager[None]:
    """No lines are recorded in this thread while the block lasts: for a transform that the engine made, such as those of an `auto_cdc`."""
    return _switch_recording(is_on=False)


@contextmanager
def _switch_recording(is_on: bool) -> Iterator[None]:
    before, _RECORDING.is_on = _RECORDING.is_on, is_on
    try:
        yield
    finally:
        _RECORDING.is_on = before


def are_call_sites_recorded() -> bool:
    """Whether lines are recorded in this thread now: what PySpark asks in a session of Sluice, instead of its own switch."""
    return _RECORDING.is_on
