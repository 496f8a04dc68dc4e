"""One propagation: its requests, its lake, and what is done so far; and a step of it, which is not done again once the ledger has it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from sluice.erasure import erasure_ledger
from sluice.erasure.request_record import ErasureRequest
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace

Follow = Callable[[], list[FlowReport]]
"""Runs every flow above bronze, so that readers of tables learn what left them. Raises FlowsFailed."""


@dataclass
class Propagation:
    """waiting: the requests to carry out. reports: one per table. began: when it began, in seconds since 1970.

    left: how many rows left each table before the step that erases from tables.
    """

    workspace: Workspace
    waiting: list[ErasureRequest]
    follow: Follow
    reports: list[FlowReport] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    left: Counter[str] = field(default_factory=Counter)

    @property
    def domains(self) -> set[str]:
        """The kinds of identifiers that the requests concern."""
        return {one.domain for request in self.waiting for one in request.subjects}

    @cached_property
    def noted(self) -> set[tuple[str, str, str]]:
        """The steps that are recorded, by request and table; `ErasureStep` adds those that it records."""
        found = erasure_ledger.list_steps_since_repeated(self.workspace.records)
        return {(one.request, one.table, one.step) for one in found}


@dataclass(frozen=True)
class ErasureStep:
    """A step of a propagation, bound to the place or the canary's store that it erases: what erases there does not know the step's name.

    name: that in the erasure ledger.
    """

    propagation: Propagation
    name: str

    def is_done(self, table: str = "") -> bool:
        """Whether it was done on a table for all of the requests."""
        return all((request.request, table, self.name) in self.propagation.noted for request in self.propagation.waiting)

    def record_done(self, table: str = "", rows: int = 0, files: int = 0) -> None:
        """Records that it was done on a table. rows, files: how many it removed or rewrote."""
        noted = self.propagation.noted
        open_ = [one.request for one in self.propagation.waiting if (one.request, table, self.name) not in noted]
        erasure_ledger.record_erasure_step(self.propagation.workspace.records, open_, table, self.name, rows, files)
        noted.update((request, table, self.name) for request in open_)
