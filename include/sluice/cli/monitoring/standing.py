"""How a pipeline stands: what waits for its flows, how fresh its tables are, what is missing, and whether its records add up."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sluice.cli.printing import format_instant
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import SluiceError
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.planning import plan
from sluice.runs.status import lag, reconciliation, stale, timeliness
from sluice.runs.status.books import PipelineBooks, find_rescued_fields


def compute_standing(records: PipelineRecords) -> dict[str, Any]:
    """A pipeline's state as a plain object. A part that cannot be found stays empty, and `problems` has the reason.

    adds_up is None if the records, and missed is None if the files, could not be looked at.
    """
    found: dict[str, Any] = {
        "flows": [],
        "freshness": [],
        "stale": [],
        "restored": [],
        "gaps": [],
        "rescued_fields": [],
        "accounts": [],
        "missed": None,
        "adds_up": None,
        "problems": [],
    }
    try:
        books = PipelineBooks(records.settings, load_declaration_graph(records.settings, records.pipeline))
    except SluiceError as error:
        return found | {"problems": [str(error)]}
    parts = {
        "flows": _compute_lag,
        "freshness": _read_freshness,
        "stale": _find_stale_tables,
        "restored": _list_restored_tables,
        "gaps": _find_schedule_gaps,
        "rescued_fields": lambda books: list(find_rescued_fields(books)),
        "accounts": _reconcile_records,
        "missed": _find_missed_files,
    }
    known = set[str]()
    for name, part in parts.items():
        try:
            found[name] = part(books)
            known.add(name)
        except SluiceError as error:
            found["problems"].append(str(error))
    adds_up = all(account["adds_up"] for account in found["accounts"]) if "accounts" in known else None
    return found | {"adds_up": adds_up}


def _compute_lag(books: PipelineBooks) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    return [
        {
            "table": flow.table,
            "layer": flow.layer,
            "deliveries": flow.deliveries,
            "bytes": flow.bytes,
            "versions": flow.versions,
            "seconds_behind": max(int((now - flow.since).total_seconds()), 0) if flow.since else None,
            "starts_anew": flow.anew,
            "stuck": flow.stuck,
            "records": flow.rows,
            "warnings": list(flow.warnings),
        }
        for flow in lag.measure_pipeline_lag(books)
    ]


def _read_freshness(books: PipelineBooks) -> list[dict[str, Any]]:
    return [
        {
            "table": found.table,
            "data_at": format_instant(found.data_at),
            "age_seconds": int(found.age.total_seconds()) if found.age else None,
            "target_seconds": int(found.target.total_seconds()) if found.target else None,
            "late": found.late,
            "checked_at": format_instant(found.checked_at),
        }
        for found in timeliness.measure_freshness(books)
    ]


def _find_stale_tables(books: PipelineBooks) -> list[dict[str, Any]]:
    found = {name: stale.find_stale_intervals(books, table) for name, table in books.graph.tables.items()}
    return [
        {
            "table": name,
            "intervals": [asdict(one) for one in dates],
            "shown": ", ".join(map(stale.describe_stale_interval, dates)),
        }
        for name, dates in found.items()
        if dates
    ]


def _list_restored_tables(books: PipelineBooks) -> list[dict[str, Any]]:
    return [
        {
            "table": name,
            "version": mark.version,
            "at": format_instant(mark.at),
            "shown": plan.describe_restored_table(books, name, mark),
        }
        for name, mark in plan.find_restored_tables(books).items()
    ]


def _find_schedule_gaps(books: PipelineBooks) -> list[dict[str, Any]]:
    return [
        {
            **asdict(gap.interval),
            "scheduled": str(gap.interval),
            "its runs": gap.why,
            "command": gap.command(books.records.pipeline),
        }
        for gap in timeliness.find_schedule_gaps(books)
    ]


def _reconcile_records(books: PipelineBooks) -> list[dict[str, Any]]:
    return [
        {**asdict(account), "landed": account.landed, "adds_up": account.adds_up}
        for account in reconciliation.reconcile_deliveries(books)
    ]


def _find_missed_files(books: PipelineBooks) -> list[dict[str, Any]]:
    """Files of which nothing was read. What a topic has lost is gone for good: its source says whether the run goes on without."""
    files = {name for name, source in books.graph.sources.items() if source.kind.in_files}
    found = [row for row in run_ledger.find_missed_files(books.deliveries) if row["source"] in files]
    return [{name: row[name] for name in ("delivery", "source", "file", "reason")} for row in found]
