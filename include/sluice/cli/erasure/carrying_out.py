"""`sluice erase run` and `approve`: carry out a pipeline's due requests, without Airflow. Their arguments are ids of requests, never identifiers."""

from __future__ import annotations

from typing import Annotated

import typer

from sluice.cli.printing import AsJson, LeaseWait, PipelineName, escaping_console, print_run_report
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import ERASE
from sluice.settings import Settings, require_known_pipeline

_REQUEST = "A request's id; may be given again. By default all due requests."


def run(
    pipeline: PipelineName,
    request: Annotated[list[str] | None, typer.Option("--request", metavar="ID", help=_REQUEST)] = None,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Erase what is due: rows from every table, bytes after the retention time, then a scan and the certificate."""
    settings = Settings.current()
    require_known_pipeline(settings, pipeline)
    # Spark's modules are imported only now, so that a wrong name is reported at once.
    from sluice.runs import erasing, job

    report = erasing.run_erase_stage(settings, job.JobRequest(pipeline, ERASE, wait=wait), request or ())
    print_run_report(report, as_json)


def approve(
    pipeline: PipelineName,
    request: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of requests.")],
) -> None:
    """Approve requests, if SLUICE_ERASURE_APPROVAL=yes requires it. On Airflow 3 the form of the DAG does so too."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    from sluice.runs import erasing

    withdrawn = erasing.approve_requests(records, request)
    for one in withdrawn:
        escaping_console().print(
            f"Request {one} was withdrawn: skipped. To ask again: sluice erase request {pipeline}", highlight=False
        )
    if approved := [one for one in request if one not in withdrawn]:
        escaping_console().print(f"Approved: {', '.join(approved)}. Next: sluice erase run {pipeline}", highlight=False)
