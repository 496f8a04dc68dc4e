"""Groups a pipeline's erasure requests by what they need now. Loads no Spark, since Airflow's tasks use it too.

What Airflow keeps of it are ids and dates: no identifier and no pseudonym.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sluice.erasure import searched_tables
from sluice.erasure.request_record import ErasureRequest, NextAction, list_erasure_requests, list_request_ids
from sluice.errors import UsageError, nearest_name_hint
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.settings import Settings

UNDECIDED_FOR = timedelta(days=7)
"""How long an inconclusive scan is not repeated, since it reads every byte, unless somebody asks for the request."""

ALERTED_BEFORE = timedelta(days=7)
"""How long before its deadline an open request is reported."""


@dataclass(frozen=True)
class DueRequests:
    """Ids of requests by what they need now, and of those that wait.

    unapproved: somebody must approve. erase: the rows must leave every table. finish: the bytes must be removed. scan: a certificate must be
    issued. again: the scan 30 days later. later: the bytes may not be removed yet.
    """

    unapproved: tuple[str, ...] = ()
    erase: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    scan: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    @property
    def now(self) -> tuple[str, ...]:
        """All requests that can be worked on now."""
        return tuple(dict.fromkeys((*self.erase, *self.finish, *self.scan, *self.again)))

    def as_lists(self) -> dict[str, list[str]]:
        """Returns plain lists, which Airflow keeps."""
        return {name: list(found) for name, found in asdict(self).items()}


def find_due_requests(records: PipelineRecords, now: datetime, asked: Collection[str] = ()) -> DueRequests:
    """Returns what is due at an instant. asked: only these requests; empty means all."""
    found: dict[str, list[str]] = {name: [] for name in DueRequests.__dataclass_fields__}
    for one in list_erasure_requests(records):
        action = one.next_action(now, records.settings.erasure_approval)
        if asked and one.request not in asked:
            continue
        if action and (asked or not _is_scan_postponed(one, action, now)):
            found[action.value].append(one.request)
    return DueRequests(**{name: tuple(ids) for name, ids in found.items()})


def _is_scan_postponed(one: ErasureRequest, action: NextAction, now: datetime) -> bool:
    at = one.undecided_scan_at
    return action in (NextAction.SCAN, NextAction.SCAN_AGAIN) and at is not None and now < at + UNDECIDED_FOR


def find_requests_to_alert(records: PipelineRecords, now: datetime) -> list[ErasureRequest]:
    """The open requests whose deadline is near or over."""
    return [one for one in list_erasure_requests(records) if one.is_open and one.deadline - now <= ALERTED_BEFORE]


def may_hold_unseen_requests(records: PipelineRecords) -> bool:
    """Calls `searched_tables.may_hold_unseen_requests`, for Airflow's tasks: they may import this module, and not that one."""
    return searched_tables.may_hold_unseen_requests(records)


def summarize_erasure_requests(
    records: PipelineRecords, asked: Collection[str] = (), now: datetime | None = None
) -> list[dict[str, Any]]:
    """Returns requests as plain objects of ids, states and dates: the given ones, or those open or certified today."""
    now = now or datetime.now(UTC)
    found = list_erasure_requests(records)
    shown = [one for one in found if one.request in asked or (not asked and (one.is_open or _is_certified_on(one, now)))]
    return [
        {
            "request": one.request,
            "state": one.shown_state,
            "due_at": one.due_at,
            "physical_due_at": one.physical_due_at,
        }
        for one in shown
    ]


def check_requests_exist(pipelines: Iterable[PipelineRecords], asked: Collection[str]) -> None:
    """Raises UsageError if no request of these pipelines has one of the ids."""
    known = {records.pipeline: list_request_ids(records) for records in pipelines}
    ids = [request for found in known.values() for request in found]
    for request in asked:
        if request not in ids:
            of_one = f" of pipeline '{next(iter(known))}'" if len(known) == 1 else ""
            raise UsageError(f"There is no erasure request '{request}'{of_one}.{nearest_name_hint(request, ids)}")


def all_requests_exist(settings: Settings, asked: Iterable[str]) -> bool:
    """Whether each of these ids belongs to a request of any pipeline."""
    return {request for records in list_pipeline_records(settings) for request in list_request_ids(records)}.issuperset(asked)


def _is_certified_on(one: ErasureRequest, now: datetime) -> bool:
    return any(at.astimezone(UTC).date() == now.date() for at in one.certified_at)
