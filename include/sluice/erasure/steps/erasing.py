"""One propagation: whose requests, in which lake, and what of it is done. A step that is noted in the ledger is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from sluice.erasure import ledger
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.erasure.requests import ErasureRequest
from sluice.errors import nearest_name_hint
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace

Follow = Callable[[], list[FlowReport]]
"""Runs every flow above bronze, so that what reads a table hears of what left it. Raises NotFollowed."""


_STEPS = frozenset({
    *(place.name for place in PERSONAL_PLACES),
    *(store.noted_step for place in PERSONAL_PLACES for store in place.controls),
})


class NotFollowed(Exception):
    """Flows that failed when they were to follow. errors: by flow; reports: of the others."""

    def __init__(self, reports: list[FlowReport], errors: dict[str, BaseException]) -> None:
        super().__init__(", ".join(sorted(errors)))
        self.reports = reports
        self.errors = errors


@dataclass
class Erasing:
    """waiting: the requests that are carried out. reports: what was done, a report a table. began: seconds since 1970."""

    workspace: Workspace
    waiting: list[ErasureRequest]
    follow: Follow
    reports: list[FlowReport] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    @property
    def domains(self) -> set[str]:
        """The kinds of identifiers that the requests are about."""
        return {one.domain for request in self.waiting for one in request.subjects}

    def is_done(self, step: str, table: str = "") -> bool:
        """Whether a step was done of a table, for all of the requests. step: the name of a personal place, or that of a canary's store.

        Raises ValueError for another one: what is noted under a name that nobody reads would be done again and again.
        """
        if step not in _STEPS:
            raise ValueError(f"There is no personal place '{step}' in the registry.{nearest_name_hint(step, _STEPS)}")
        return all((request.request, table, step) in self._noted for request in self.waiting)

    def done(self, step: str, table: str = "", rows: int = 0, files: int = 0) -> None:
        """Note that a step was done. rows, files: how many it took out or rewrote."""
        open_ = [one.request for one in self.waiting if (one.request, table, step) not in self._noted]
        ledger.record_erasure_step(self.workspace.records, open_, table, step, rows, files)
        self._noted.update((request, table, step) for request in open_)

    @cached_property
    def _noted(self) -> set[tuple[str, str, str]]:
        found = ledger.read_erasure_ledger(self.workspace.records)
        return {(one.request, one.table, one.step) for one in found}
