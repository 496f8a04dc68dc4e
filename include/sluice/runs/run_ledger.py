"""Appends to the run ledger, and reads the ledgers without a JVM: what each run did, the state of each delivery, and the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pyarrow as pa

from sluice import entries
from sluice.delivery_rows import RECORDED, REPEATED_IN_OUTCOMES, OutcomeRow
from sluice.entries import ENTRY, AcceptedDelivery, select_counting_deliveries
from sluice.errors import UsageError, nearest_name_hint
from sluice.flow_counts import FlowFindings
from sluice.locations import locate
from sluice.open_tables import find_table_snapshot, open_checked_table, read_snapshot_rows
from sluice.pipeline_records import QUARANTINE, PipelineRecords, name_quarantine
from sluice.pipeline_stages import KNOWN_LAYERS
from sluice.record_columns import list_object_columns, make_record_schema
from sluice.record_states import (
    DELIVERED,
    DONE,
    FAILED,
    INGESTED,
    MISSED,
    SAME_DELIVERY,
    SUPERSEDED,
    TAKEN,
    UNOPENED,
    WAITING,
    carry_current_content,
    show_delivery_state,
)
from sluice.record_tables import append_record_rows

if TYPE_CHECKING:
    from sluice.runs.job import JobRequest

Row = dict[str, Any]

STAGE_STEPS: Final = "stage_steps"
STAGE_CPU: Final = "stage_cpu_seconds"
"""The columns of the run ledger that are measured once, for the whole stage."""


class RunRow(TypedDict, total=False):
    """What a row of the run ledger says besides what its flow found, which is `FlowFindings`. There is one row per flow and run.

    The columns of a stage are the same in all its rows.
    """

    run: str
    pipeline: str
    stage: str
    mode: str
    airflow_run: str | None
    started_at: datetime
    ended_at: datetime
    interval_start: datetime
    interval_end: datetime
    """Of a replay or a scheduled run."""
    stage_steps: Mapping[str, float]
    """The seconds of the whole stage, by step (`sluice.step_times`)."""
    stage_cpu_seconds: float | None
    """Of the stage's process and its JVM, from the start of the process on if the stage was its first."""

    state: str
    """How the flow ended: see `sluice.record_states`."""
    note: str
    failure: str | None
    """Of a flow that failed, the kind of error (`name_failure`)."""
    fingerprint: str | None
    """Of the declaration that the flow ran with."""
    entry: int
    """See `sluice.entries`."""


RUNS = make_record_schema(RunRow, FlowFindings, all_nullable=True)
RUN_OBJECTS = list_object_columns(RunRow, FlowFindings)
"""The columns that are stored as the texts of JSON objects."""
STARTED = "started_at"
"""The column that orders runs without an entry."""
WHOLE_STAGE = "(whole stage)"
"""The flow in the row of a stage that failed outside its flows, for instance over a damaged log, and in the row of its next
success. No table has this name."""
_OF_OUTCOME = tuple(
    name for name in OutcomeRow.__annotations__ if name not in {*REPEATED_IN_OUTCOMES, "run", "header", "held_back"}
)
"""What the delivery ledger shows of the last outcome as it is; None if there is none."""


def has_committed(row: Row) -> bool:
    """Whether the rows that a flow counted went where they belong: one that failed before its first commit left none."""
    return bool(row["state"] != FAILED or row["version_before"] != row["version_after"])


def append_run_rows(records: PipelineRecords, rows: list[Row]) -> None:
    """Appends to the run ledger. Call it under the pipeline's lease."""
    stored = [{**row, **{name: json.dumps(row[name]) for name in RUN_OBJECTS if name in row}} for row in rows]
    append_record_rows(records.run_ledger, stored, RUNS)


def append_report_rows(
    records: PipelineRecords,
    request: JobRequest,
    report: dict[str, Any],
    at: datetime,
    failed: Mapping[str, str],
    fingerprints: Mapping[tuple[str, str], str | None],
) -> None:
    """Appends a report to the run ledger, one row per flow.

    at: when the run began. failed: by flow, which kind of error it ended with. fingerprints: those of declarations, by flow and layer.
    """
    of_stage: RunRow = {
        "run": report["run"],
        "pipeline": request.pipeline,
        "stage": request.stage,
        "mode": request.mode,
        "airflow_run": request.airflow_run,
        "started_at": at,
        "ended_at": datetime.now(UTC),
        STAGE_STEPS: report.get(STAGE_STEPS, {}),
        STAGE_CPU: report.get(STAGE_CPU),
    }
    if request.interval:
        of_stage |= {"interval_start": request.interval.start, "interval_end": request.interval.end}
    rows: list[Row] = []
    for flow in report["flows"]:
        ended: RunRow = {
            "state": FAILED if flow["flow"] in failed else DONE,
            "failure": failed.get(flow["flow"]),
            "fingerprint": fingerprints.get((flow["flow"], flow["layer"])),
        }
        rows.append({**of_stage, **flow, **ended})
    if rows:
        append_run_rows(records, rows)


def read_run_ledger(records: PipelineRecords) -> list[Row]:
    """Reads the run ledger, newest last: in the order in which runs were recorded, whatever the clock said."""
    found = read_snapshot_rows(records.run_ledger)
    for row in found:
        for name in RUNS.names:  # a ledger lacks a column that came after its last row
            row.setdefault(name, None)
        for name in RUN_OBJECTS:
            row[name] = json.loads(row[name] or "{}")
    return entries.sort_by_entry(found, STARTED)


def has_failed_as_whole(records: PipelineRecords, stage: str) -> bool:
    """Whether a stage failed as a whole, and has not gone well since. Raises DamagedLog."""
    found = find_table_snapshot(records.run_ledger)
    if found is None:
        return False
    rows = found.read_columns(pa.schema([RUNS.field(name) for name in ("stage", "flow", "state", STARTED, ENTRY)])).to_pylist()
    ours = [row for row in rows if row["flow"] == WHOLE_STAGE and row["stage"] == stage]
    return bool(ours) and entries.sort_by_entry(ours, STARTED)[-1]["state"] == FAILED


def read_delivery_ledger(
    records: PipelineRecords, source: str | None = None, replacing: frozenset[str] = frozenset()
) -> list[Row]:
    """Reads the delivery ledger, oldest first. state: waiting, ingested, superseded, quarantined, missed, vanished, discarded.

    held_back: the fields, with their types, that it was the first to have and that did not become columns; None if there are none. Entries
    that are not deliveries have the state existing, ignored, cleaned or returned, or missed if the file cannot be opened.

    replacing: the sources in which the latest version of a file supersedes the earlier ones.
    """
    outcomes: dict[int, Row] = {}
    held_back: dict[int, dict[str, str]] = {}
    for row in entries.sort_by_entry(read_snapshot_rows(records.outcome_ledger), RECORDED):
        if row.get("held_back"):  # recorded once, by any outcome; a later one does not remove it
            held_back.setdefault(row["delivery"], {}).update(json.loads(row["held_back"]))
        outcomes[row["delivery"]] = row
    superseded = _find_superseded_deliveries(list(outcomes.values()), replacing)
    found: list[Row] = []
    rows = sorted(read_snapshot_rows(records.delivery_ledger), key=lambda row: int(row["delivery"]))
    carry_current_content(rows, ("size", "modified_at"))
    for row in rows:
        if source is None or row["source"] == source:
            outcome = outcomes.get(row["delivery"])
            if outcome is None or show_delivery_state(outcome["state"]) == WAITING:
                outcome = _state_without_outcome(row)
            entry = {**row, **{name: outcome.get(name) for name in _OF_OUTCOME}, "ingest_run": outcome.get("run")}
            entry["held_back"] = held_back.get(row["delivery"])
            found.append(entry | {"state": SUPERSEDED} if row["delivery"] in superseded else entry)
    return found


def find_missed_files(deliveries: list[Row]) -> list[Row]:
    """Returns, for each file that is missed now, the entry that says so. deliveries: from `read_delivery_ledger`.

    A file is no longer missed if its next state was read, or if it is gone.
    """
    last: dict[tuple[str, str], Row] = {}
    content: dict[tuple[str, str], Row] = {}
    for row in deliveries:
        file = (row["source"], row["file"])
        if row["event"] == DELIVERED:
            content[file] = row
        last[file] = content.get(file, row) if row["event"] in SAME_DELIVERY else row
    return [row for row in last.values() if row["state"] == MISSED]


def _state_without_outcome(row: Row) -> Row:
    """Returns the state of an entry without an outcome."""
    if row["event"] == UNOPENED:
        return {"state": MISSED, "reason": row.get("reason")}
    return {"state": WAITING if row["event"] in TAKEN else row["event"]}


def _find_superseded_deliveries(outcomes: list[Row], replacing: frozenset[str]) -> set[int]:
    """Returns accepted deliveries that are not the one of their file that counts."""
    accepted = [row for row in outcomes if row["state"] == INGESTED and row["source"] in replacing]

    counting = select_counting_deliveries(
        AcceptedDelivery(row["delivery"], (row["source"], row["file"]), row["modified_at"], row["sha256"]) for row in accepted
    )
    return {row["delivery"] for row in accepted} - counting


def list_pipeline_tables(records: PipelineRecords) -> list[Row]:
    """Lists every existing table of a pipeline, including restricted ones: layer, table, rows, version, files, bytes, path."""
    found = []
    for restricted in (False, True):
        root = locate(records.table_path("", "", restricted=restricted)).resolve()
        for log in sorted(root.glob("*/*/_delta_log")):
            layer, name = log.parent.parent.name, log.parent.name
            if not layer.startswith("_"):
                path = records.table_path(layer, name, restricted=restricted)
                found.append({"layer": layer, "table": name, **_measure_table(str(log.parent)), "path": path})
    return sorted(found, key=lambda row: (_LAYERS.get(row["layer"], 9), row["layer"], row["table"]))


def read_table_rows(records: PipelineRecords, table: str) -> list[Row]:
    """Returns a table's rows. Meant for small tables. Raises UsageError if there is no such table."""
    return read_snapshot_rows(find_table_path(records, table))


def find_table_path(records: PipelineRecords, table: str) -> str:
    """Returns the path of an existing table. Raises UsageError with the nearest name."""
    present = {sql_name(row): str(row["path"]) for row in list_pipeline_tables(records)}
    if table not in present:
        raise UsageError(
            f"There is no table '{records.pipeline}.{table}' in {records.settings.lake}.{nearest_name_hint(table, present)}"
        )
    return present[table]


def sql_name(row: Row) -> str:
    """Returns the SQL name of a table from `list_pipeline_tables`."""
    return name_quarantine(str(row["table"])) if row["layer"] == QUARANTINE else str(row["table"])


_LAYERS = {name: position for position, name in enumerate((*(stage.name for stage in KNOWN_LAYERS), QUARANTINE))}


def _measure_table(path: str) -> Row:
    table = open_checked_table(path)
    actions = table.get_add_actions(flatten=True)
    sizes: list[int] = pa.chunked_array(actions["size_bytes"]).to_pylist() if len(actions) else []
    counts: list[int | None] = pa.chunked_array(actions["num_records"]).to_pylist() if len(actions) else []
    known = [count for count in counts if count is not None]
    rows = sum(known) if len(known) == len(counts) else None
    return {"rows": rows, "version": table.version(), "files": len(sizes), "bytes": sum(sizes)}
