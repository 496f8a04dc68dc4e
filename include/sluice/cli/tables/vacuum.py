"""`sluice vacuum`: shows and removes the files that no version within a table's retention needs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sluice.cli.printing import AsJson, LeaseWait, TableOrPipeline, print_json, print_rows, print_run_report
from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import UsageError, nearest_name_hint
from sluice.pipeline_stages import VACUUM
from sluice.printable import format_size
from sluice.runs.status import removals
from sluice.settings import Settings


def vacuum(
    name: TableOrPipeline,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed. Starts no Spark.")] = False,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Remove the files that no version within a table's retention needs, if that is worth it. Every run does it."""
    settings = Settings.current()
    pipeline, _, table = name.partition(".")
    graph = load_declaration_graph(settings, pipeline)
    rows = describe_table_vacuums(settings, graph)
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
    from sluice.runs.execution.stages import StageOptions

    clones.check_stage_in_clone(settings, graph, VACUUM.name)
    request = job.JobRequest(pipeline, VACUUM.name, wait=wait)
    report = job.run_under_lease(
        settings,
        graph,
        request,
        lambda workspace: (
            upkeep.vacuum_named_table(workspace, table)
            if table
            else upkeep.run_vacuum_stage(workspace, VACUUM.name, StageOptions())
        ),
    )
    print_run_report(report, as_json)


def describe_table_vacuums(settings: Settings, graph: Graph) -> list[dict[str, Any]]:
    """For each existing table, what VACUUM would remove now, and why or why not. files: how many outlived the retention."""
    now = datetime.now(UTC)
    holding = removals.find_holding_flows(settings, graph, now)
    found = []
    for table, decision in removals.decide_all_vacuums(settings, graph, now).items():
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
