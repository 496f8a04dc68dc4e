"""`sluice erase request`, `import`, `lift` and `withdraw`; and `run` and `approve`, which carry due requests out without Airflow.

They read identifiers from files or standard input only, and print none. Those that carry out take ids of requests.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sluice.cli.erasure.request_states import find_erasure_request
from sluice.cli.printing import AsJson, LeaseWait, PipelineName, escaping_console, print_json, print_run_report
from sluice.errors import UsageError
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.locations import Location
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import ERASE
from sluice.runs.lease import lock
from sluice.settings import Settings, require_known_pipeline

_PIPELINE = "A folder of include/pipelines."
_FILE = "Identifiers, one a line or as JSON; otherwise standard input."


def request_erasure(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help=_PIPELINE, show_default=False)] = None,
    of: Annotated[str | None, typer.Option("--pipeline", metavar="PIPELINE", help="The same as the argument.")] = None,
    identifier: Annotated[
        str | None, typer.Option(metavar="DOMAIN", help="The kind of the identifiers, if they come one a line.")
    ] = None,
    subject_file: Annotated[Location | None, typer.Option(help=_FILE)] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for the erasure of people by any of their identifiers: one a line, or as JSON such as [{"user_id": "12140"}].

    An identifier that several people had in turn needs an instant: [{"device_id": "17", "at": "2026-11-20T08:00:00Z"}].
    """
    from sluice.erasure import requests
    from sluice.erasure.subjects import subject_files

    if (pipeline is None) == (of is None):
        raise UsageError("Name the pipeline once: sluice erase request gym, or --pipeline gym.")
    settings = Settings.current()
    lake = load_pipeline_lake(settings, pipeline or of or "")
    refuse_request_in_clone(lake)
    text = _read_identifier_file(subject_file, "--subject-file") if subject_file else _read_identifiers_from_stdin()
    made = requests.receive_erasure_request(
        lake, subject_files.parse_identifier_text(lake.graph, text, identifier), said="asked by command"
    )
    if as_json:
        print_json({"request": made.request, "domain": made.domain, "identifiers": len(made.pseudonyms), "due_at": made.due_at})
        return
    printed, name = escaping_console(), lake.graph.pipeline.name
    printed.print(
        f"Request {made.request}: identifiers of kind '{made.domain}': {len(made.pseudonyms)}. Due on {made.due_at[:10]}."
    )
    printed.print(f"The next run of '{name}' carries it out, or: sluice erase run {name}")


def import_requests(
    pipeline: PipelineName,
    file: Annotated[
        Location, typer.Argument(help="CSV: a person a line; columns are kinds of identifiers, and received_at, at.")
    ],
    as_json: AsJson = False,
) -> None:
    """Ask for the erasure of many people, with one request each. A request whose person is ambiguous does not hold up the others.

    All are carried out together, with one scan. Wrong lines are skipped and reported by their number; the exit code is then 1.
    """
    from sluice.erasure import requests
    from sluice.erasure.subjects import subject_files

    settings = Settings.current()
    lake = load_pipeline_lake(settings, pipeline)
    refuse_request_in_clone(lake)
    good, bad = subject_files.parse_identifier_csv(lake.graph, _read_identifier_file(file, "The file"))
    made = [requests.receive_erasure_request(lake, one.identifiers, received_at=one.received_at, said="imported") for one in good]
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


def refuse_request_in_clone(lake: PipelineLake) -> None:
    """Raises UsageError in a clone, whose runs would never carry out the request."""
    from sluice.runs.execution import clones

    clones.refuse_in_clone(lake.records, "No request was made. Ask there, then remove the clone and make it again.")


def lift_suppression(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="A request's id.")],
    as_json: AsJson = False,
) -> None:
    """Allow new data of a request's people. Data delivered before stays erased."""
    from sluice.erasure import request_reversal

    records, _ = find_erasure_request(Settings.current(), request)
    # Otherwise an erasure could write the list at the same time, and one of the two commits could be lost.
    with lock.hold_lease_without_spark(records, "receiving", "Try again when it has ended."):
        lifted = request_reversal.lift_suppression(records, request)
    if as_json:
        print_json({"pipeline": records.pipeline, "request": request, "lifted": lifted})
    else:
        escaping_console().print(f"Request {request}: entries of the suppression list lifted: {lifted}.")


def withdraw_request(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="A request's id.")],
    as_json: AsJson = False,
) -> None:
    """Take back a request that was not carried out yet, such as one made by mistake. Its identifiers leave the vault."""
    from sluice.erasure import request_reversal

    records, _ = find_erasure_request(Settings.current(), request)
    # Otherwise a propagation could begin to carry it out meanwhile.
    with lock.hold_lease_without_spark(records, "receiving", "Try again when it has ended."):
        found = request_reversal.withdraw_erasure_request(records, request)
    if as_json:
        print_json({"pipeline": records.pipeline, "request": request, "withdrawn_at": found.withdrawn_at})
    else:
        escaping_console().print(f"Request {request} is withdrawn. Nobody is erased by it.")


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


_REQUEST = "A request's id; may be given again. By default all due requests."


def run_erasures(
    pipeline: PipelineName,
    request: Annotated[list[str] | None, typer.Option("--request", metavar="ID", help=_REQUEST)] = None,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Erase what is due: rows from every table, bytes after the retention time, then a scan and the certificate."""
    settings = Settings.current()
    require_known_pipeline(settings, pipeline)
    # Spark's modules are imported only now, so that a wrong name is reported at once.
    from sluice.runs import erasure_jobs, job

    report = erasure_jobs.run_erase_stage(settings, job.JobRequest(pipeline, ERASE.name, wait=wait), request or ())
    print_run_report(report, as_json)


def approve_requests(
    pipeline: PipelineName,
    request: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of requests.")],
) -> None:
    """Approve requests, if SLUICE_ERASURE_APPROVAL=yes requires it. On Airflow 3 the form of the DAG does so too."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    from sluice.runs import erasure_jobs

    withdrawn = erasure_jobs.approve_requests(records, request)
    for one in withdrawn:
        escaping_console().print(
            f"Request {one} was withdrawn: skipped. To ask again: sluice erase request {pipeline}", highlight=False
        )
    if approved := [one for one in request if one not in withdrawn]:
        escaping_console().print(f"Approved: {', '.join(approved)}. Next: sluice erase run {pipeline}", highlight=False)
