"""`sluice optimize` and `sluice vacuum`: say which files are worth a rewrite, or that nothing needs, and rewrite or remove them on demand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sluice import delta_log
from sluice.cli.printing import AsJson, LeaseWait, TableOrPipeline, print_json, print_rows, print_run_report
from sluice.errors import UsageError, nearest_name_hint
from sluice.lake.file_overlap import describe_question_costs
from sluice.lake.layout import measure_asked_questions
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.pipeline_stages import OPTIMIZE, VACUUM
from sluice.printable import format_size
from sluice.runs.execution.stages import SCHEDULED
from sluice.runs.planning.plan import decide_table_layouts
from sluice.runs.status import removals
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings


def optimize(
    name: TableOrPipeline,
    now: Annotated[bool, typer.Option("--now", help="Rewrite the table's files, whether or not it needs it.")] = False,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Say whether tables' files are worth a rewrite, and why. Every run rewrites those that are. With --now, rewrite one table's files."""
    settings = Settings.current()
    pipeline, _, table = name.partition(".")
    lake = load_pipeline_lake(settings, pipeline)
    if table:
        lake.graph[table]  # raises where there is none
    if not now:
        decisions = decide_table_layouts(PipelineBooks(settings, lake.graph))
        rows: list[dict[str, Any]] = [
            {
                "table": one,
                "needed": "yes" if decision.needed else "no",
                "why": decision.why,
                "questions": _describe_questions(lake.path(one), lake.graph.find_asked_columns(one)),
            }
            for one, decision in decisions.items()
            if table in ("", one)
        ]
        if as_json:
            print_json({"pipeline": pipeline, "tables": rows})
        else:
            print_rows(
                [{**row, "questions": "; ".join(row["questions"])} for row in rows], ("table", "needed", "why", "questions")
            )
        return
    if not table:
        raise UsageError(f"--now is for one table: sluice optimize {pipeline}.TABLE --now")
    if lake.graph.table_of(table) != table or not delta_log.is_delta_table(lake.path(table)):
        raise UsageError(f"'{name}' has no table of its own yet.")
    # Spark's modules are imported only now, so that a wrong name is reported at once.
    from sluice.runs import job
    from sluice.runs.execution import clones, upkeep

    clones.check_stage_in_clone(lake, OPTIMIZE.name)
    request = job.JobRequest(pipeline, OPTIMIZE.name, wait=wait)
    report = job.run_under_lease(lake, request, lambda workspace: upkeep.optimize_tables_now(workspace, [table]))
    print_run_report(report, as_json)


def _describe_questions(path: str, columns: Sequence[str]) -> list[str]:
    """The files and bytes that a query by each of the columns opens now."""
    return [describe_question_costs(column, cost) for column, cost in measure_asked_questions(path, columns).items()]


def vacuum(
    name: TableOrPipeline,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed. Starts no Spark.")] = False,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Remove the files that no version within a table's retention needs, if that is worth it. Every run does it."""
    settings = Settings.current()
    pipeline, _, table = name.partition(".")
    lake = load_pipeline_lake(settings, pipeline)
    rows = describe_table_vacuums(lake)
    tables = [row["table"] for row in rows]
    if table and table not in tables:
        raise UsageError(f"'{pipeline}' has no table '{table}' yet.{nearest_name_hint(table, tables)}")
    if dry_run:
        found = [row for row in rows if table in ("", row["table"])]
        if as_json:
            print_json({"pipeline": pipeline, "tables": found})
        else:
            shown = [{**row, "bytes": format_size(row["bytes"]), "remove": "yes" if row["remove"] else "no"} for row in found]
            print_rows(shown, ("table", "remove", "files", "bytes", "why"))
        return
    # Spark's modules are imported only now, so that a wrong name is reported at once.
    from sluice.runs import job
    from sluice.runs.execution import clones, upkeep

    clones.check_stage_in_clone(lake, VACUUM.name)
    request = job.JobRequest(pipeline, VACUUM.name, wait=wait)
    report = job.run_under_lease(
        lake,
        request,
        lambda workspace: (
            upkeep.vacuum_named_table(workspace, table) if table else upkeep.run_vacuum_stage(workspace, VACUUM.name, SCHEDULED)
        ),
    )
    print_run_report(report, as_json)


def describe_table_vacuums(lake: PipelineLake) -> list[dict[str, Any]]:
    """For each existing table, what VACUUM would remove now, and why or why not. files: how many outlived the retention."""
    now = datetime.now(UTC)
    holding = removals.find_holding_flows(lake, now)
    found = []
    for table, decision in removals.decide_all_vacuums(lake, now).items():
        held = [str(one) for one in holding.get(table, ())] if decision.needed else []
        found.append({
            "table": table,
            "remove": decision.needed and not held,
            "files": len(decision.inventory.expired),
            "bytes": decision.inventory.expired_bytes,
            "in_full": decision.in_full,
            "why": "; ".join(held) or decision.why,
            "names": [file.path for file in decision.inventory.expired],
        })
    return found
