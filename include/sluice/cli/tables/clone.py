"""`sluice clone`: a pipeline's tables in a development lake."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, escaping_console, print_json, print_rows
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.runs.copies import cloning
from sluice.runs.execution.clones import COPY, SHALLOW
from sluice.settings import Settings, require_known_pipeline


def clone(
    pipeline: PipelineName,
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="The lake to make: a folder without tables of the pipeline.")],
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Reference the files as they are: quick, and with all personal data.")
    ] = False,
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this table; may be given again.")] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the lease of the clone.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Clone a pipeline's tables into another lake, by default without personal data. Keys become random stand-ins that still join."""
    settings = Settings.current()
    graph = load_declaration_graph(settings, require_known_pipeline(settings, pipeline))
    report, made = cloning.clone_tables(settings, graph, to, SHALLOW if shallow else COPY, table or (), wait)
    if as_json:
        print_json({**report, "clone": made})
        return
    _print_clone_report(pipeline, to, report, made)


def _print_clone_report(pipeline: str, to: str, report: dict[str, Any], made: dict[str, Any]) -> None:
    rows = [
        {"table": flow["flow"], "of version": made["tables"][flow["flow"]]["version"], "rows": flow["rows_out"] or None}
        | {"without": ", ".join(one["left_out"]), "stand-ins": ", ".join(one["stand_ins"])}
        for flow in report["flows"]
        if (one := made["tables"][flow["flow"]])
    ]
    print_rows(rows, ("table", "of version", "rows", "without", "stand-ins"), title=f"{pipeline} in {to}")
    if made["not_cloned"]:
        missing = [{"table": name, "why": why} for name, why in made["not_cloned"].items()]
        print_rows(missing, ("table", "why"), title="Not cloned")
    if made["kind"] == SHALLOW:
        escaping_console().print(
            f"\nThe files stay in {made['from']}: personal data is read through the clone, people who are erased are in it until it is removed, "
            "and it breaks when VACUUM removes those files there.",
            soft_wrap=True,
        )
    escaping_console().print(f"\nTo work in it: export SLUICE_LAKE={to}", soft_wrap=True)
