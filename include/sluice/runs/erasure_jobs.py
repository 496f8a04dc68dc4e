"""The jobs that erase: `sluice erase run`, and the stage `propagate_deletions`, which first removes records that are too old, then erased people.

The first does everything that a pipeline's erasures need, under one lease, so that no flow writes while its bytes are searched. Rows leave
every table first. Then bytes whose retention is over are removed. Then a scan of every byte decides on the certificate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from sluice.erasure import searched_tables
from sluice.errors import SluiceError, StageEnded, UsageError
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import DELETIONS, ERASE
from sluice.runs import due_requests, job, script, vault_expiry
from sluice.runs.execution import clones
from sluice.runs.execution.stages import StageOptions
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.lake.flow_report import FlowReport, TableTurns
    from sluice.lake.workspace import Workspace

_AT_ONCE = 500
"""How many requests share one scan: each has about twenty-five needles, and with this many a scan takes several times as long as with one."""


def run_erase_script() -> NoReturn:
    """Runs the job script: by its arguments, with the exit codes that every job has."""
    parser = script.build_job_parser(ERASE.name, "What is due of a pipeline's requests to erase people.")
    parser.add_argument(
        "--requests", default="", type=script.split_names, help="Ids, separated by commas; otherwise all that is due."
    )
    parser.add_argument("--approved", action="store_true", help="Somebody approved of these requests.")
    script.run_job_script(ERASE.name, parser, lambda arguments: [_run_erase_from_arguments(arguments)])


def run_erase_stage(
    settings: Settings, asked: job.JobRequest, requests: Sequence[str] = (), approved: bool = False
) -> dict[str, Any]:
    """Does what is due, for these requests or for all, and records it as a run of the stage `erase`. Returns the run's report.

    The report also has an entry `requests`: id, state and dates of each, and its latest certificate. Starts no Spark if nothing is due.
    Raises SluiceError if a scan finds a person, and UsageError for an unknown id or a clone.
    """
    records = PipelineRecords(settings, asked.pipeline)
    lake = load_pipeline_lake(settings, asked.pipeline)
    clones.refuse_in_clone(records, "Erase people there, then remove the clone and make it again.")
    due_requests.check_requests_exist([records], requests)
    if approved:
        for request in approve_requests(records, requests):
            print(f"Request {request} was withdrawn meanwhile: passed over.", flush=True)
    found = due_requests.find_due_requests(records, datetime.now(UTC), requests)
    if not found.now and (requests or not searched_tables.has_unseen_request_rows(lake)):
        report = job.empty_run_report(asked)
    else:
        report = job.run_under_lease(lake, asked, lambda workspace: carry_out_due_erasures(workspace, requests))
    vault_expiry.forget_expired_identifiers(records)
    return {**report, "requests": due_requests.summarize_erasure_requests(records, requests)}


def approve_requests(records: PipelineRecords, ids: Sequence[str]) -> list[str]:
    """Approves requests, if SLUICE_ERASURE_APPROVAL requires that. Airflow knows who approved; the lake does not record it.

    Returns those that were withdrawn, which do not hold up the others. Raises UsageError for an unknown id.
    """
    from sluice.erasure import request_events, request_record, requests

    withdrawn = []
    for found in [request_record.read_erasure_request(records, request) for request in ids]:
        if found.is_withdrawn:
            withdrawn.append(found.request)
        elif found.state == request_events.RECEIVED:
            requests.advance_request_state(records, found, request_events.RECEIVED, request_events.APPROVED)
    return withdrawn


def carry_out_due_erasures(workspace: Workspace, asked: Sequence[str] = ()) -> list[FlowReport]:
    """Does what is due, under the held lease. asked: only these requests; empty means all.

    If a part fails, the removals and certificates of other people are still tried. Raises FlowsFailed at the end if a part failed or
    a scan found a person. StopRequested ends it at once.
    """
    from sluice.erasure import physical
    from sluice.lake.flow_report import take_table_turns
    from sluice.runs.execution import stages

    parts: dict[str, Callable[[], list[FlowReport]]] = {
        "propagation": lambda: stages.run_pipeline_stage(workspace, DELETIONS.name, StageOptions(requests=asked)),
        physical.REMOVAL_OF_BYTES: lambda: physical.finish_physical_erasure(workspace, datetime.now(UTC), only=asked),
    }
    with take_table_turns(ERASE.name) as turns:
        for name, work in parts.items():
            turns.reports += turns.take_part(name, ERASE.name, work)
        turns.take_flows(lambda: scan_and_certify_requests(workspace, asked))
    return turns.reports


def scan_and_certify_requests(workspace: Workspace, asked: Sequence[str] = ()) -> list[FlowReport]:
    """Scans for the requests whose bytes should be gone, and issues their certificates. Returns a report for each.

    Raises FlowsFailed, once all had their turn, if one has no certificate or a scan found a person, and StopRequested between two scans.
    """
    from sluice.erasure import request_events, requests, vault
    from sluice.flows.progress import streams
    from sluice.lake.flow_report import TableTurns

    records, turns = workspace.records, TableTurns()
    found = due_requests.find_due_requests(records, datetime.now(UTC), asked)
    for request in found.again:
        if not vault.has_vault_entry(records, request):
            requests.add_request_event(records, request, request_events.NOT_SCANNED, "its identifiers are not kept any more")
    scanned = [*found.scan, *(one for one in found.again if vault.has_vault_entry(records, one))]
    for first in range(0, len(scanned), _AT_ONCE):
        streams.stop_if_requested(workspace)
        _certify_request_batch(workspace, scanned[first : first + _AT_ONCE], turns)
    return turns.end_turns()


def _certify_request_batch(workspace: Workspace, ids: Sequence[str], turns: TableTurns) -> None:
    """Scans once for these requests, and keeps a report of each and the errors."""
    from sluice.erasure import request_events, request_record, vault
    from sluice.erasure.proof import certificate, chain
    from sluice.erasure.proof.sought import hint_at_near_spellings
    from sluice.lake.flow_report import FlowReport

    records = workspace.records
    reports = {request: FlowReport(flow=request_events.name_erasure_flow(request), layer=ERASE.name) for request in ids}
    turns.reports += reports.values()
    known = []
    for request, report in reports.items():
        try:
            vault.read_vault_identifiers(records, request)
            known.append(request_record.read_erasure_request(records, request))
        except SluiceError as error:  # one request's vault entry failed: the others still get certificates
            turns.errors[report.flow] = error
    try:
        issued = certificate.issue_certificates(workspace.lake, known) if known else {}
    except certificate.CertificatesNotIssued as some:
        issued = some.made
        turns.errors |= {reports[request].flow: error for request, error in some.errors.items()}
    except SluiceError as error:
        issued = {}
        turns.errors |= {reports[one.request].flow: error for one in known}
    for request, made in issued.items():
        report = reports[request]
        report.note_seconds()
        report.notes.append(f"{made.verdict}: {made.path}; head of the chain {chain.format_chain_head(made.record)}")
        if made.verdict == certificate.FAIL:
            turns.errors[report.flow] = SluiceError(
                f"The scan for request {request} found the person or the control. The certificate: {made.path}."
                f"{hint_at_near_spellings(workspace.lake, request)}"
            )


def _run_erase_from_arguments(given: argparse.Namespace) -> dict[str, Any]:
    if given.approved and not given.requests:
        raise UsageError("--approved needs --requests ID,ID.")
    return run_erase_stage(Settings.current(), script.read_job_request(given, ERASE.name), given.requests, given.approved)


def needs_no_spark_to_erase(workspace: Workspace) -> bool:
    """Whether there is no request, no source whose rows grow too old, and no catalog to tell: only Spark does these."""
    return not (
        due_requests.find_due_requests(workspace.records, datetime.now(UTC)).now
        or searched_tables.has_unseen_request_rows(workspace.lake)
        or any(source.keep_for for source in workspace.graph.sources.values())
        or workspace.settings.catalog
    )


def run_deletion_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Removes what is too old and then erases people, even if the first fails: a failing flow must not keep people in the tables.

    People who may be back since a table's log was repaired go first of all, before any flow follows.

    Raises FlowsFailed with all reports if something failed before the last part, otherwise what the last part raises.
    """
    from sluice.erasure import aging, propagation, request_record
    from sluice.lake.flow_report import FlowReport, TableTurns
    from sluice.runs.execution.layers import run_layers_above_bronze

    workspace = workspace.as_increment()

    def follow() -> list[FlowReport]:
        return run_layers_above_bronze(workspace)

    again, now, turns = request_record.list_repeated_requests(workspace.records), datetime.now(UTC), TableTurns()
    first: dict[str, Callable[[], list[FlowReport]]] = {
        "erased_again": lambda: propagation.propagate_deletions(workspace, follow, only=again) if again else [],
        "aging_aside": lambda: aging.remove_old_rows_aside_or_late(workspace, now),
        "aging": lambda: aging.delete_expired_rows(workspace, follow),
    }
    for name, work in first.items():
        turns.reports += turns.take_part(name, stage, work)
    try:
        turns.reports += propagation.propagate_deletions(workspace, follow, only=options.requests)
    except SluiceError as error:
        if not turns.errors or isinstance(error, StageEnded):
            raise
        turns.reports.append(FlowReport(flow=stage, layer=stage))
        turns.errors = {stage: error, **turns.errors}
    return turns.end_turns()
