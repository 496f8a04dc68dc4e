"""Follows a driver on a cluster while its task is deferred and holds no slot of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from orchestration.spark_submit.cluster_driver import POLL_SECONDS, DriverFollower, SubmittedDriver
from orchestration.spark_submit.cluster_task import follow_driver
from orchestration.spark_submit.hook import choose_driver_manager_by_connection, choose_spark_by_connection
from sluice.runs.followed_job import JobLost
from sluice.settings import Settings

STOP_SECONDS = 20.0
"""How long a driver may take to stop when asked: Airflow gives a trigger 30 s."""


class DriverTrigger(BaseTrigger):
    """Ends when a submitted driver has ended, is lost, or takes too long. Its event says which, and `finish_deferred` does the rest.

    The arguments are the fields of `SubmittedDriver`, and `until`: when it has taken too long, in seconds since 1970, None for never. A
    restarted triggerer makes the trigger again from them.
    """

    def __init__(self, *, until: float | None, **driver: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._driver = SubmittedDriver(**driver)
        self._until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, for Airflow to store."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {**asdict(self._driver), "until": self._until}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the driver's file until it says how the driver ended."""
        yield TriggerEvent({"driver": asdict(self._driver), **await self._wait_for_end()})  # type: ignore[no-untyped-call]

    async def _wait_for_end(self) -> dict[str, Any]:
        try:
            followed = await asyncio.to_thread(self._follow)
            while await asyncio.to_thread(followed.look) is None:
                if self._until is not None and time.time() > self._until:
                    return {"too_long": True}
                await asyncio.sleep(POLL_SECONDS)
        except JobLost as error:
            return {"lost": str(error)}
        return {}

    async def on_kill(self) -> None:
        """Stop the driver of a deferred task that somebody marked or cleared. Only Airflow 3 calls this."""
        followed = await asyncio.to_thread(self._follow)
        await asyncio.to_thread(followed.stop, STOP_SECONDS)

    def _follow(self) -> DriverFollower:
        conn_id = self._driver.conn_id
        settings = choose_spark_by_connection(Settings.current(), conn_id)
        manager = choose_driver_manager_by_connection(settings, conn_id)
        if manager is None:
            raise JobLost(f"The connection '{conn_id}' no longer uses cluster mode.")
        return follow_driver(self._driver, manager, settings)
