"""`sluice erase list` and `status`: the state of requests. They print no identifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, escaping_console, print_json, print_rows
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.erasure.request_record import ErasureRequest


_STANDING = ("pipeline", "waiting", "done", "certified", "failed", "overdue", "next_due_at")


def list_requests(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List a pipeline's requests, oldest first."""
    rows = [_request_as_row(found) for found in _read_requests(PipelineRecords.of_known(Settings.current(), pipeline))]
    if as_json:
        print_json({"pipeline": pipeline, "requests": rows})
        return
    _print_requests(pipeline, rows)


def _print_requests(pipeline: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        print_rows(rows, ("request", "identifier", "identifiers", "state", "received_at", "due_at", "done_at", "physical_due_at"))
    else:
        escaping_console().print(f"Nobody has asked to be erased from '{pipeline}'.")


def status_of_requests(
    which: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE|REQUEST]", help="A pipeline, for its requests; or a request's id, for its history."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how many requests wait, are done, failed or are overdue, for each pipeline or for one; or the history of one request."""
    settings = Settings.current()
    pipelines = {records.pipeline: records for records in list_pipeline_records(settings)}
    if which in pipelines:
        _print_pipeline_requests(pipelines[which], as_json)
        return
    if which:
        found, request = find_erasure_request(settings, which, list(pipelines), "pipeline, and no erasure request,")
        _print_request(found.pipeline, request, as_json)
        return
    rows = [
        {"pipeline": pipeline, **_count_requests_by_state(_read_requests(records))} for pipeline, records in pipelines.items()
    ]
    if as_json:
        print_json({"pipelines": rows})
    else:
        print_rows(rows, _STANDING)


def count_waiting_requests(records: PipelineRecords) -> int:
    """How many requests are not carried out yet."""
    return int(_count_requests_by_state(_read_requests(records))["waiting"])


def _read_requests(records: PipelineRecords) -> list[ErasureRequest]:
    from sluice.erasure import request_record

    return request_record.list_erasure_requests(records)


def find_erasure_request(
    settings: Settings, request: str, others: Sequence[str] = (), called: str = "erasure request"
) -> tuple[PipelineRecords, ErasureRequest]:
    """The request with this id, and its pipeline's records. Raises UsageError with the nearest id. others: further names to suggest."""
    from sluice.errors import nearest_name_hint

    every = {one.request: (records, one) for records in list_pipeline_records(settings) for one in _read_requests(records)}
    if request not in every:
        raise UsageError(f"There is no {called} '{request}'.{nearest_name_hint(request, [*every, *others])}")
    return every[request]


def _request_as_row(found: ErasureRequest) -> dict[str, Any]:
    return {
        "request": found.request,
        "identifier": found.domain,
        "identifiers": len(found.pseudonyms),
        "state": found.shown_state,
        "received_at": found.received_at,
        "due_at": found.due_at,
        "done_at": found.rows_left_at,
        "physical_due_at": found.physical_due_at,
        "lifted_at": found.lifted_at,
        "withdrawn_at": found.withdrawn_at,
    }


def _count_requests_by_state(found: list[ErasureRequest]) -> dict[str, Any]:
    from sluice.erasure import request_events

    standing = [one for one in found if not one.is_withdrawn]
    states = Counter(one.state for one in standing)
    going = [one.due_at for one in found if one.is_open]
    now = datetime.now(UTC)
    return {
        "waiting": states[request_events.RECEIVED],
        "done": sum(states[state] for state in request_events.DONE),
        "certified": states[request_events.CERTIFIED],
        "failed": states[request_events.FAILED],
        "overdue": sum(datetime.fromisoformat(due) < now for due in going),
        "next_due_at": min(going, default=None),
    }


def _print_pipeline_requests(records: PipelineRecords, as_json: bool) -> None:
    found = _read_requests(records)
    standing, rows = {"pipeline": records.pipeline, **_count_requests_by_state(found)}, [_request_as_row(one) for one in found]
    if as_json:
        print_json({"pipelines": [standing], "requests": rows})
        return
    print_rows([standing], _STANDING)
    _print_requests(records.pipeline, rows)


def _print_request(pipeline: str, found: ErasureRequest, as_json: bool) -> None:
    history = [vars(event) for event in found.history]
    if as_json:
        print_json({
            "pipeline": pipeline,
            **_request_as_row(found),
            "subjects": Counter(one.domain for one in found.subjects),
            "history": history,
        })
        return
    escaping_console().print(
        f"Request {found.request} of '{pipeline}': {_request_as_row(found)['state']}. Due on {found.due_at[:10]}."
    )
    if found.physical_due_at:
        escaping_console().print(f"The bytes go from {found.physical_due_at[:16]} UTC on.")
    print_rows(history, ("at", "state", "note"))
