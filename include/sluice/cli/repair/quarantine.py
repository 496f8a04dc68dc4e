"""`sluice quarantine`: shows what was set aside and why, and puts it back or discards it. Shows the content of rows only when asked to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from sluice.cli.name_lookup import resolve_table_name
from sluice.cli.printing import AsJson, LeaseWait, Limit, PipelineName, escaping_console, print_json, print_rows
from sluice.cli.tables.read import query_delta_table
from sluice.errors import UsageError
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.pipeline_records import QUARANTINE, QUARANTINED_RECORD, PipelineRecords, name_quarantine, name_quarantined_table
from sluice.printable import count_noun
from sluice.runs import run_ledger
from sluice.runs.repair import quarantine_run
from sluice.settings import Settings, require_known_pipeline

quarantine = typer.Typer(help="Rows and files that were set aside: list, show, replay, discard.", no_args_is_help=True)

PLAIN = ("_delivery", "_file", "_row", "reasons", "rules_version", "quarantined_at")
"""The columns of a quarantine that hold no part of a record."""
_BY_REASON = """
SELECT reason, count(*) AS rows, count(DISTINCT _delivery) AS deliveries
FROM (SELECT unnest(reasons) AS reason, _delivery FROM t) GROUP BY reason ORDER BY rows DESC, reason
"""
_BY_DELIVERY = """
SELECT _delivery, max(_file) AS file, count(*) AS entries, count(_row) AS numbered FROM t
GROUP BY _delivery ORDER BY _delivery DESC
"""
_ID = "TABLE/DELIVERY for a file or all of its rows, TABLE/DELIVERY/ROW for one row."

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help=_ID, show_default=False)]


@quarantine.command("list")
def list_reasons(
    pipeline: PipelineName,
    ids: Annotated[bool, typer.Option("--ids", help="By delivery, with the id that replay and discard take.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how many rows were set aside, by table and reason. A row with several reasons counts for each."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    rows = _query_each_quarantine(records, _BY_DELIVERY) if ids else count_quarantined_by_reason(records)
    if ids:
        rows = [
            {
                "id": f"{row['table']}/{row['_delivery']}",
                "file": row["file"],
                "what": "rows" if row["numbered"] else "the whole file",
                "rows": row["entries"],
            }
            for row in rows
        ]
    expired = count_expired_rows(records)
    if as_json:
        print_json({"pipeline": pipeline, "ids" if ids else "reasons": rows, "expired": expired})
        return
    if rows:
        print_rows(rows, ("id", "file", "what", "rows") if ids else ("table", "reason", "rows", "deliveries"))
    else:
        escaping_console().print(f"Nothing of '{pipeline}' is in quarantine.")
    for table, number in expired.items():
        escaping_console().print(
            f"{table}: {count_noun(number, 'row', 'has', 'have')} expired and cannot be replayed from here.",
            soft_wrap=True,
        )


@quarantine.command("show")
def show_quarantined_rows(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="ID|TABLE", help=f"{_ID} Or a table: its latest.")],
    raw: Annotated[bool, typer.Option("--raw", help="Also show the content of rows and files, which may be personal.")] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show rows in quarantine: where they came from and why they are there."""
    settings = Settings.current()
    require_known_pipeline(settings, pipeline)
    named, (delivery, row) = quarantine_run.parse_quarantine_entry(name) if "/" in name else (name, (None, None))
    named = name_quarantined_table(named) or named
    _, _, path = resolve_table_name(settings, f"{pipeline}.{name_quarantine(named)}")
    columns = (*PLAIN, *QUARANTINED_RECORD) if raw else PLAIN
    limits = {"_delivery": delivery, "_row": row}
    where = " AND ".join(f"{column} = {number}" for column, number in limits.items() if number is not None) or "true"
    rows = query_delta_table(
        path, f"SELECT {', '.join(columns)} FROM t WHERE {where} ORDER BY _delivery DESC, _row LIMIT {limit}"
    )
    rows = [{"id": _format_quarantine_id(named, found), **found} for found in rows]
    if as_json:
        print_json({"pipeline": pipeline, "table": named, "rows": rows})
    elif rows:
        print_rows(rows, ("id", *columns[1:2], *columns[3:]))
    else:
        escaping_console().print(f"Nothing of '{pipeline}.{name}' is in quarantine.")


@quarantine.command("replay")
def replay_quarantined_rows(
    pipeline: PipelineName,
    ids: Ids = None,
    all_of: Annotated[str | None, typer.Option("--all", metavar="TABLE", help="Everything in this table's quarantine.")] = None,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Check rows and files again by today's declaration. Those that fit go to their table, once; the rest stays in quarantine."""
    settings = Settings.current()
    lake = load_pipeline_lake(settings, pipeline)
    report = quarantine_run.run_quarantine_replay(
        lake, quarantine_run.parse_quarantine_selection(lake.graph, ids or [], all_of), wait
    )
    _print_readmission_report(pipeline, report, as_json)


@quarantine.command("discard")
def discard_quarantined_rows(
    pipeline: PipelineName,
    ids: Ids = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason; the ledger keeps it with the name of who did it.")] = "",
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Remove rows and files from quarantine for good. The ledger keeps how many, who did it, and why."""
    if not reason.strip():
        raise UsageError("--reason is missing: the ledger keeps why something was discarded.")
    settings = Settings.current()
    lake = load_pipeline_lake(settings, pipeline)
    report = quarantine_run.run_quarantine_discard(
        lake, quarantine_run.parse_quarantine_selection(lake.graph, ids or []), reason, wait
    )
    _print_readmission_report(pipeline, report, as_json)


def count_expired_rows(records: PipelineRecords) -> dict[str, int]:
    """By table, how many rows were in its quarantine for longer than the pipeline keeps them, and are gone."""
    found: dict[str, int] = {}
    for row in run_ledger.read_run_ledger(records):
        table = name_quarantined_table(row["flow"] or "")
        if table and row["expired"]:
            found[table] = found.get(table, 0) + row["expired"]
    return found


def count_quarantined_by_reason(records: PipelineRecords) -> list[dict[str, Any]]:
    """How many rows of how many deliveries are in quarantine, by table and reason. A row with several reasons counts for each."""
    return _query_each_quarantine(records, _BY_REASON)


def _print_readmission_report(pipeline: str, report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    for flow in report["flows"]:
        escaping_console().print(f"{pipeline}.{flow['flow']}: {flow['note']}", soft_wrap=True)
    if report["committed"]:
        escaping_console().print(f"Tables that read these follow in the next run: sluice run {pipeline}", soft_wrap=True)


def _query_each_quarantine(records: PipelineRecords, text: str) -> list[dict[str, Any]]:
    """The results of a query over each quarantine."""
    found: list[dict[str, Any]] = []
    for one in run_ledger.list_pipeline_tables(records):
        if one["layer"] == QUARANTINE:
            found += [{"table": one["table"], **row} for row in query_delta_table(one["path"], text)]
    return found


def _format_quarantine_id(name: str, row: dict[str, Any]) -> str:
    parts: Sequence[object] = [part for part in (name, row["_delivery"], row["_row"]) if part is not None]
    return "/".join(str(part) for part in parts)
