"""Waiting for what other processes do: all waits of the tests are as patient as the busiest machine needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types

PATIENCE = 6
"""How much longer than alone on the machine a wait may take: `.ci/run` has other tests and both pipelines run beside the system tests.

A run that alone takes 50 seconds has been seen to take 200 there.
"""


def patient_deadline(seconds: float) -> float:
    """The instant, of the monotonic clock, at which waiting for what takes at most so long on an idle machine is given up."""
    return time.monotonic() + PATIENCE * seconds


def until(condition: Callable[[], Any], seconds: float = 120, what: str = "it") -> Any:
    """What the condition gives, once it gives anything. seconds: how long that may take at most where nothing else runs."""
    deadline = patient_deadline(seconds)
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come to that within {PATIENCE * seconds} s"
        time.sleep(0.2)
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_past_schedule(minutes: float = 6) -> None:
    """Returns at once, except in the minutes before 02:00 UTC: then after it, as Airflow begins another scheduled run of the gym at that time."""
    begins = datetime.now(UTC).replace(hour=2, minute=0, second=0, microsecond=0)
    if begins - timedelta(minutes=minutes) <= datetime.now(UTC) < begins:
        time.sleep((begins - datetime.now(UTC)).total_seconds() + 1)
