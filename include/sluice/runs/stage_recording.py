"""Appends the report of a stage to the run ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.pipeline_records import PipelineRecords
from sluice.record_states import DONE, FAILED
from sluice.runs import run_ledger
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.runs.job import JobRequest


def append_report_rows(
    settings: Settings,
    request: JobRequest,
    report: dict[str, Any],
    at: datetime,
    failed: Mapping[str, str],
    fingerprints: Mapping[tuple[str, str], str | None],
) -> None:
    """Appends a report to the run ledger, one row per flow.

    at: when the run began. failed: by flow, which kind of error it ended with. fingerprints: those of declarations, by flow and layer.
    """
    of_stage: run_ledger.RunRow = {
        "run": report["run"],
        "pipeline": request.pipeline,
        "stage": request.stage,
        "mode": request.mode,
        "airflow_run": request.airflow_run,
        "started_at": at,
        "ended_at": datetime.now(UTC),
        run_ledger.STAGE_STEPS: report.get(run_ledger.STAGE_STEPS, {}),
        run_ledger.STAGE_CPU: report.get(run_ledger.STAGE_CPU),
    }
    if request.interval:
        of_stage |= {"interval_start": request.interval.start, "interval_end": request.interval.end}
    rows: list[run_ledger.Row] = []
    for flow in report["flows"]:
        ended: run_ledger.RunRow = {
            "state": FAILED if flow["flow"] in failed else DONE,
            "failure": failed.get(flow["flow"]),
            "fingerprint": fingerprints.get((flow["flow"], flow["layer"])),
        }
        rows.append({**of_stage, **flow, **ended})
    if rows:
        run_ledger.append_run_rows(PipelineRecords(settings, request.pipeline), rows)
