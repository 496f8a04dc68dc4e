"""One propagation: its requests, its lake, and what is done so far. A step recorded in the ledger is not done again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from sluice.erasure import ledger
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.erasure.request_record import ErasureRequest
from sluice.errors import nearest_name_hint
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace

Follow = Callable[[], list[FlowReport]]
"""Runs every flow above bronze, so that readers of tables learn what left them. Raises NotFollowed."""


_STEPS = frozenset({
    *(place.name for place in PERSONAL_PLACES),
    *(store.noted_step for place in PERSONAL_PLACES for store in place.controls),
})


class NotFollowed(Exception):
    """Flows failed that had to follow. errors: by flow; reports: those of the others."""

    def __init__(self, reports: list[FlowReport], errors: dict[str, BaseException]) -> None:
        super().__init__(", ".join(sorted(errors)))
        self.reports = reports
        self.errors = errors


@dataclass
class Erasing:
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

    def is_done(self, step: str, table: str = "") -> bool:
        """Whether a step was done on a table for all of the requests. step: the name of a personal place, or of a canary's store.

        Raises ValueError for any other name: a step recorded under a name that nobody reads would be done again and again.
        """
        if step not in _STEPS:
            raise ValueError(f"There is no personal place '{step}' in the registry.{nearest_name_hint(step, _STEPS)}")
        return all((request.request, table, step) in self._noted for request in self.waiting)

    def done(self, step: str, table: str = "", rows: int = 0, files: int = 0) -> None:
        """Records that a step was done. rows, files: how many it removed or rewrote."""
        open_ = [one.request for one in self.waiting if (one.request, table, step) not in self._noted]
        ledger.record_erasure_step(self.workspace.records, open_, table, step, rows, files)
        self._noted.update((request, table, step) for request in open_)

    @cached_property
    def _noted(self) -> set[tuple[str, str, str]]:
        found = ledger.read_erasure_ledger(self.workspace.records)
        return {(one.request, one.table, one.step) for one in found}
