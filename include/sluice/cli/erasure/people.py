"""`sluice erase`: requests, and what became of them. Identifiers come by a file or standard input, not as arguments; none is printed.

`sluice erase run` and `approve`: what is due of a pipeline's requests, without Airflow. Ids of requests only.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, escaping_console, print_json, print_rows
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import UsageError
from sluice.locations import Location
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.pipeline_stages import ERASE
from sluice.runs.lease import lock
from sluice.settings import Settings, require_known_pipeline

if TYPE_CHECKING:
    from sluice.erasure.requests import ErasureRequest

erase = typer.Typer(help="Erase people: make requests, carry them out, see their state.", no_args_is_help=True)

_STANDING = ("pipeline", "waiting", "done", "certified", "failed", "overdue", "next_due_at")
_PIPELINE = "A folder of include/pipelines."
_FILE = "Identifiers, one a line or as JSON; otherwise standard input."


@erase.command()
def request(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help=_PIPELINE, show_default=False)] = None,
    of: Annotated[str | None, typer.Option("--pipeline", metavar="PIPELINE", help="The same as the argument.")] = None,
    identifier: Annotated[
        str | None, typer.Option(metavar="DOMAIN", help="The kind of the identifiers, where they come one a line.")
    ] = None,
    subject_file: Annotated[Location | None, typer.Option(help=_FILE)] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for the erasure of people by any identifier of theirs: one a line, or as JSON such as [{"user_id": "12140"}].

    An identifier that several people had in turn needs an instant: [{"device_id": "17", "at": "2026-11-20T08:00:00Z"}].
    """
    from sluice.erasure import receiving
    from sluice.erasure.subjects import subject_files

    if (pipeline is None) == (of is None):
        raise UsageError("Say of which pipeline, once: sluice erase request gym, or --pipeline gym.")
    settings = Settings.current()
    graph = load_declaration_graph(settings, pipeline or of or "")
    text = _read_identifier_file(subject_file, "--subject-file") if subject_file else _read_identifiers_from_stdin()
    made = receiving.receive_erasure_request(
        settings, graph, subject_files.parse_identifier_text(graph, text, identifier), said="asked by command"
    )
    if as_json:
        print_json({"request": made.request, "domain": made.domain, "identifiers": len(made.pseudonyms), "due_at": made.due_at})
        return
    printed, name = escaping_console(), graph.pipeline.name
    printed.print(
        f"Request {made.request}: identifiers of kind '{made.domain}': {len(made.pseudonyms)}. Due on {made.due_at[:10]}."
    )
    printed.print(f"The next run of '{name}' carries it out, or: sluice erase run {name}")


@erase.command("import")
def import_requests(
    pipeline: PipelineName,
    file: Annotated[
        Location, typer.Argument(help="CSV: a person a line; columns are kinds of identifiers, and received_at, at.")
    ],
    as_json: AsJson = False,
) -> None:
    """Ask for the erasure of many people, with one request each. A request whose person is ambiguous does not hold up the others.

    All are carried out and scanned for together. Wrong lines are set aside and reported by their number; the exit code is then 1.
    """
    from sluice.erasure import receiving
    from sluice.erasure.subjects import subject_files

    settings = Settings.current()
    graph = load_declaration_graph(settings, pipeline)
    good, bad = subject_files.parse_identifier_csv(graph, _read_identifier_file(file, "The file"))
    made = [
        receiving.receive_erasure_request(settings, graph, one.identifiers, received_at=one.received_at, said="imported")
        for one in good
    ]
    if as_json:
        aside = [{"line": one.line, "why": one.why} for one in bad]
        print_json({"requests": [one.request for one in made], "people": len(good), "set_aside": aside})
    else:
        for asked, one in zip(good, made, strict=True):
            escaping_console().print(
                f"Line {asked.line}: request {one.request}, identifiers: {len(one.pseudonyms)}. Due on {one.due_at[:10]}."
            )
        escaping_console().print(f"People: {len(good)}. Lines set aside: {len(bad)}.")
        for wrong in bad:
            escaping_console().print(f"Line {wrong.line}: {wrong.why}.")
    if bad:
        raise typer.Exit(1)


@erase.command("list")
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


@erase.command("status")
def status_of_requests(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[PIPELINE|REQUEST]", help="A pipeline, for its requests; or a request's id, for its state and history."
        ),
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
        found, request = _find_request(settings, which, list(pipelines), "pipeline, and no erasure request,")
        _print_request(found.pipeline, request, as_json)
        return
    rows = [
        {"pipeline": pipeline, **_count_requests_by_state(_read_requests(records))} for pipeline, records in pipelines.items()
    ]
    if as_json:
        print_json({"pipelines": rows})
    else:
        print_rows(rows, _STANDING)


@erase.command()
def lift(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="A request's id.")],
    as_json: AsJson = False,
) -> None:
    """Let the people of a request come back by new data. What was delivered before stays out."""
    from sluice.erasure import receiving

    records, _ = _find_request(Settings.current(), request)
    lifted = receiving.lift_suppression(records, request)
    if as_json:
        print_json({"pipeline": records.pipeline, "request": request, "lifted": lifted})
    else:
        escaping_console().print(f"Request {request}: entries of the suppression list lifted: {lifted}.")


@erase.command()
def withdraw(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="A request's id.")],
    as_json: AsJson = False,
) -> None:
    """Take back a request that was not carried out yet, such as one made by mistake. Its identifiers leave the vault."""
    from sluice.erasure import receiving

    records, _ = _find_request(Settings.current(), request)
    # A propagation that begins meanwhile would have it in hand.
    with lock.hold_lease_without_spark(records, "receiving", "Try again when it has ended."):
        found = receiving.withdraw_erasure_request(records, request)
    if as_json:
        print_json({"pipeline": records.pipeline, "request": request, "withdrawn_at": found.withdrawn_at})
    else:
        escaping_console().print(f"Request {request} is withdrawn. Nobody is erased by it.")


def count_waiting_requests(records: PipelineRecords) -> int:
    """How many requests are not carried out yet."""
    return int(_count_requests_by_state(_read_requests(records))["waiting"])


def _read_requests(records: PipelineRecords) -> list[ErasureRequest]:
    from sluice.erasure import requests

    return requests.list_erasure_requests(records)


def _find_request(
    settings: Settings, request: str, others: Sequence[str] = (), called: str = "erasure request"
) -> tuple[PipelineRecords, ErasureRequest]:
    """The request of that id, and its pipeline's records. Raises UsageError with the nearest id. others: what may have been meant as well."""
    from sluice.errors import nearest_name_hint

    every = {one.request: (records, one) for records in list_pipeline_records(settings) for one in _read_requests(records)}
    if request not in every:
        raise UsageError(f"There is no {called} '{request}'.{nearest_name_hint(request, [*every, *others])}")
    return every[request]


def _request_as_row(found: ErasureRequest) -> dict[str, Any]:
    from sluice.erasure import requests

    return {
        "request": found.request,
        "identifier": found.domain,
        "identifiers": len(found.pseudonyms),
        "state": requests.WITHDRAWN if found.withdrawn_at else found.state,
        "received_at": found.received_at,
        "due_at": found.due_at,
        "done_at": found.done_at,
        "physical_due_at": found.physical_due_at,
        "lifted_at": found.lifted_at,
        "withdrawn_at": found.withdrawn_at,
    }


def _count_requests_by_state(found: list[ErasureRequest]) -> dict[str, Any]:
    from sluice.erasure import requests

    standing = [one for one in found if one.withdrawn_at is None]
    states = Counter(one.state for one in standing)
    going = [one.due_at for one in standing if one.state != requests.CERTIFIED and one.lifted_at is None]
    now = datetime.now(UTC)
    return {
        "waiting": states[requests.RECEIVED],
        "done": sum(states[state] for state in requests.DONE),
        "certified": states[requests.CERTIFIED],
        "failed": states[requests.FAILED],
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


def _read_identifier_file(path: Location, called: str) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{called} {path}: {why}.") from None


def _read_identifiers_from_stdin() -> str:
    if sys.stdin.isatty():
        print("Write identifiers, one a line or as JSON; end with Ctrl-D.", file=sys.stderr, flush=True)
    return sys.stdin.read()


_REQUEST = "A request's id; may be given again. Otherwise all that is due."


def run(
    pipeline: PipelineName,
    request: Annotated[list[str] | None, typer.Option("--request", metavar="ID", help=_REQUEST)] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the lease.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Erase what is due: rows from every table, bytes after the retention time, then a scan and the certificate."""
    settings = Settings.current()
    require_known_pipeline(settings, pipeline)
    # Spark's modules only now: a wrong name is answered at once.
    from sluice.runs import erasing, job, summary

    report = erasing.run_erase_stage(settings, job.JobRequest(pipeline, ERASE, wait=wait), request or ())
    if as_json:
        print_json(report)
    else:
        print(summary.format_run_summary(report))


def approve(
    pipeline: PipelineName,
    request: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of requests.")],
) -> None:
    """Let requests be carried out, where SLUICE_ERASURE_APPROVAL=yes asks for that. On Airflow 3 its form does so, too."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    from sluice.runs import erasing

    withdrawn = erasing.approve_requests(records, request)
    for one in withdrawn:
        escaping_console().print(
            f"Request {one} was withdrawn: passed over. To ask again: sluice erase request {pipeline}", highlight=False
        )
    if approved := [one for one in request if one not in withdrawn]:
        escaping_console().print(f"Approved: {', '.join(approved)}. Next: sluice erase run {pipeline}", highlight=False)
