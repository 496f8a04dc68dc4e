"""Finds what a pipeline's erasures need, and by when, from the requests' files. Loads no Spark, since Airflow's tasks use it too.

Only ids and dates: no identifier and no pseudonym leaves this room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sluice.erasure.request_events import (
    APPROVED,
    CERTIFIED,
    FAILED,
    KEPT_AFTER,
    LIFTED,
    LOGICALLY,
    NOT_SCANNED,
    PHYSICALLY,
    RECEIVED,
    SCANNED,
    SCANNED_AGAIN_AFTER,
    SEARCHED_TABLES,
    WITHDRAWN,
    load_kept_request,
)
from sluice.errors import UsageError, nearest_name_hint
from sluice.kept_files import KeptFileDamaged, load_kept_json
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.settings import Settings

UNDECIDED_FOR = timedelta(days=7)
"""How long an inconclusive scan is not repeated, since it reads every byte, unless somebody asks for the request."""

ALERTED_BEFORE = timedelta(days=7)
"""How long before its deadline an open request is reported."""


@dataclass(frozen=True)
class RequestStanding:
    """The standing of a request. due_at: its deadline for a certificate. physical_due_at: the earliest time for removing its bytes.

    certified: when each of its certificates was issued. scanned: when it was last scanned, if that scan was inconclusive. erased: whether its
    rows have ever left the tables; a request that failed before that must be made again. approved: whether it may be carried out. lifted:
    whether the person may come back or the request was withdrawn, so that it is finished. passed_over: whether the second scan was skipped.
    """

    request: str
    state: str
    due_at: datetime | None = None
    physical_due_at: datetime | None = None
    certified: tuple[datetime, ...] = ()
    scanned: datetime | None = None
    erased: bool = True
    approved: bool = True
    lifted: bool = False
    passed_over: bool = False

    @property
    def looked_again_until(self) -> datetime | None:
        """Until when its identifiers are needed for the second scan. None if that is done, or if there will be none."""
        if self.state != CERTIFIED or self.lifted or self.passed_over or not self.certified:
            return None
        first = self.certified[0]
        return first + KEPT_AFTER if self.certified[-1] < first + SCANNED_AGAIN_AFTER else None

    @property
    def open(self) -> bool:
        """Whether the erasure is not proved yet."""
        return self.state != CERTIFIED and not self.lifted


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


_SCANS = ("scan", "again")


def read_request_standings(records: PipelineRecords) -> list[RequestStanding]:
    """Returns the standing of each request of a pipeline, oldest first."""
    folder = records.erasure_requests
    told = [
        load_kept_request(path, lambda said: _standing_with_sort_key(said, records.settings.erasure_approval))
        for path in folder.glob("*.json")
    ]
    return [standing for _, standing in sorted(told, key=lambda one: one[0])]


def _standing_with_sort_key(said: Any, approval: bool) -> tuple[tuple[str, str], RequestStanding]:
    return (str(said["received_at"]), str(said["request"])), _parse_request_standing(said, approval)


def find_due_requests(standings: Iterable[RequestStanding], now: datetime, asked: Collection[str] = ()) -> DueRequests:
    """Returns what is due at an instant. asked: only these requests; none means all."""
    found: dict[str, list[str]] = {name: [] for name in DueRequests.__dataclass_fields__}
    for one in standings:
        name = _find_due_action(one, now)
        undecided = name in _SCANS and one.scanned is not None and now < one.scanned + UNDECIDED_FOR and one.request not in asked
        if name and not undecided and (not asked or one.request in asked):
            found[name].append(one.request)
    return DueRequests(**{name: tuple(ids) for name, ids in found.items()})


def may_hold_unseen_requests(records: PipelineRecords) -> bool:
    """Whether bronze may hold rows that are unread requests, as far as one can know without the pipeline's declarations.

    That is so if a table was searched for requests before, and has changed since.
    """
    path = records.searched_tables_file
    if not path.is_file():
        return False
    from sluice.lake import log  # imported here, because Airflow parses this module

    try:
        seen = load_kept_json(path, SEARCHED_TABLES, "", lambda said: list(said.values()))
    except KeptFileDamaged:
        return True  # the next run searches everything again and rewrites the file
    return any(log.table_change_mark(one["path"]) not in (None, one["mark"]) for one in seen)


def summarize_erasure_requests(
    records: PipelineRecords, asked: Collection[str] = (), now: datetime | None = None
) -> list[dict[str, Any]]:
    """Returns the standing of requests, as plain objects of ids, states and dates: the given ones, or those open or certified today."""
    now = now or datetime.now(UTC)
    found = read_request_standings(records)
    shown = [one for one in found if one.request in asked or (not asked and (one.open or _is_certified_on(one, now)))]
    return [
        {
            "request": one.request,
            "state": one.state,
            "due_at": _format_instant(one.due_at),
            "physical_due_at": _format_instant(one.physical_due_at),
        }
        for one in shown
    ]


def check_requests_exist(standings: Iterable[RequestStanding], asked: Collection[str]) -> None:
    """Raises UsageError if no request has one of the ids."""
    ids = [one.request for one in standings]
    for request in asked:
        if request not in ids:
            raise UsageError(f"There is no request '{request}' in this pipeline.{nearest_name_hint(request, ids)}")


def all_requests_exist(settings: Settings, asked: Iterable[str]) -> bool:
    """Whether each of these ids belongs to a request of any pipeline."""
    folders = [records.erasure_requests for records in list_pipeline_records(settings)]
    return all(any((folder / f"{one}.json").is_file() for folder in folders) for one in asked)


def _find_due_action(one: RequestStanding, now: datetime) -> str | None:
    """Returns what a request needs, as the name of a field of DueRequests. None if it is finished."""
    if one.lifted or one.passed_over or (one.state == FAILED and not one.erased):
        return None
    if one.state == RECEIVED:
        return "erase" if one.approved else "unapproved"
    if one.state == LOGICALLY:
        return "finish" if one.physical_due_at is None or one.physical_due_at <= now else "later"
    if one.state in (PHYSICALLY, FAILED):
        return "scan"
    # An earlier certificate, which somebody requested by hand, is not the second scan.
    again = one.certified[0] + SCANNED_AGAIN_AFTER if one.certified else now
    return "again" if one.certified and one.certified[-1] < again <= now else None


def _parse_request_standing(told: dict[str, Any], approval: bool) -> RequestStanding:
    history = told["history"]
    state = WITHDRAWN if any(event["state"] == WITHDRAWN for event in history) else told["state"]
    return RequestStanding(
        told["request"],
        state,
        _parse_instant(told.get("due_at")),
        _parse_instant(told.get("physical_due_at")),
        tuple(datetime.fromisoformat(event["at"]) for event in history if event["state"] == CERTIFIED),
        datetime.fromisoformat(history[-1]["at"]) if history and history[-1]["state"] == SCANNED else None,
        any(event["state"] == LOGICALLY for event in history),
        not approval or any(event["note"] == APPROVED for event in history),
        any(event["state"] in (LIFTED, WITHDRAWN) for event in history),
        bool(history) and history[-1]["state"] == NOT_SCANNED,
    )


def _is_certified_on(one: RequestStanding, now: datetime) -> bool:
    return any(at.astimezone(UTC).date() == now.date() for at in one.certified)


def _format_instant(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None


def _parse_instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
