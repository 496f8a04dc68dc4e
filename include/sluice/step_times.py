"""Measures the seconds of a flow or a stage, by step: `sluice why` shows them, the run ledger keeps them.

Code that begins a piece of work worth a line of its own calls `measure_step`; a caller that wants the times runs the work under
`collect_step_times`. Without the latter nothing is measured. If a step is within another, only the inner one gets the seconds, so that the
steps of a flow add up to at most its whole time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

STARTING = "starting Spark"
WAITING = "waiting for the lease"
DISCOVERING = "looking for deliveries"
TABLES = "tables"
STAGE_STEPS = (STARTING, WAITING, DISCOVERING, TABLES)
"""The steps of a stage, in their order. STARTING: the process, its imports, and the JVM; the stage's own time begins after most of it.
TABLES: from the first flow of the stage to the last, which run side by side."""

LOOKING = "looking"
PREPARING = "preparing"
PLANNING = "planning"
STREAMING = "streaming"
COMPUTING = "computing"
WRITING = "writing"
CHECKING = "checking"
FLOW_STEPS = (LOOKING, PREPARING, PLANNING, STREAMING, COMPUTING, WRITING, CHECKING)
"""The steps of a flow. LOOKING: checks whether anything is new. PREPARING: creates its tables, or changes them to match the declaration.
PLANNING: analyses its transform, and what a change of an input can reach. STREAMING: starts Spark's stream, lists what is new and
keeps the checkpoint. COMPUTING: reads, transforms, checks and compares rows. WRITING: commits. CHECKING: evaluates expectations on
the whole table."""


@dataclass(eq=False)
class StepTimes:
    """Seconds by step. job_tags: Spark's tags of the work's jobs (`sluice.lake.spark_counters`).

    streams: Spark's counts of each ended query of the flow (`sluice.flows.progress.stream_numbers`).
    """

    seconds: dict[str, float] = field(default_factory=dict)
    job_tags: list[str] = field(default_factory=list)
    streams: list[Mapping[str, float]] = field(default_factory=list)
    _within: list[float] = field(default_factory=list)
    """For each running step, from the outermost, the seconds of the steps within it that have ended."""
    _going_on: list[str] = field(default_factory=list)

    @property
    def step_in_progress(self) -> str | None:
        """The innermost running step; None if there is none. Another thread may call it."""
        return next(iter(self._going_on[-1:]), None)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Count the block's seconds under a step."""
        began = time.monotonic()
        self._within.append(0.0)
        self._going_on.append(step)
        try:
            yield
        finally:
            self._going_on.pop()
            took = time.monotonic() - began
            self.seconds[step] = self.seconds.get(step, 0.0) + took - self._within.pop()
            if self._within:
                self._within[-1] += took

    def rounded_seconds(self) -> dict[str, float]:
        """Seconds by step to the hundredth, without steps that took less."""
        return {step: found for step, seconds in self.seconds.items() if (found := round(seconds, 2)) > 0}


_CURRENT: ContextVar[StepTimes | None] = ContextVar("step times of this thread's work", default=None)


@contextmanager
def collect_step_times(times: StepTimes | None) -> Iterator[None]:
    """Count the block's steps in this object. In another thread that does a part of the same work, call it again with the same object."""
    token = _CURRENT.set(times)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_step_times() -> StepTimes | None:
    """The object in which this thread's steps are counted."""
    return _CURRENT.get()


@contextmanager
def measure_step(step: str) -> Iterator[None]:
    """Count the seconds of the block, or of the decorated function, under a step, if step times are collected."""
    times = _CURRENT.get()
    if times is None:
        yield
        return
    with times.measure(step):
        yield
