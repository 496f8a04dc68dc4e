"""`sluice restore`: a table as it was, without those who were erased since."""

from __future__ import annotations

from typing import Annotated

import typer

from sluice.cli.printing import AsJson, escaping_console, print_json
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import UsageError
from sluice.runs.repair import restoring
from sluice.settings import Settings, require_known_pipeline

_TO = "A version, as in `sluice history`; or a date or instant (UTC): as it was then."


def restore(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="<pipeline>.<table>, above bronze.")],
    to: Annotated[str, typer.Option("--to", metavar="VERSION|DATE", help=_TO)],
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the lease.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Let a table be as it was at a version. Who was erased since stays out. What reads it follows in the next run."""
    settings = Settings.current()
    pipeline, dot, table = name.partition(".")
    if not dot or not table:
        raise UsageError(f"'{name}' is no table's name: write it as <pipeline>.<table>.")
    graph = load_declaration_graph(settings, require_known_pipeline(settings, pipeline))
    report = restoring.run_table_restore(settings, graph, table, to, wait)
    if as_json:
        print_json(report)
        return
    flow = report["flows"][0]
    escaping_console().print(f"{name}: {flow['note']}", soft_wrap=True)
    if not report["committed"]:
        return
    counts = ", ".join(f"{flow[of]:,} rows {of}" for of in ("inserted", "updated", "deleted") if flow[of])
    left = f"; {flow['suppressed']:,} rows of people who were erased since stay out" if flow["suppressed"] else ""
    escaping_console().print(f"{counts}{left}.", soft_wrap=True)
    escaping_console().print(
        f"{restoring.describe_restore_effects(graph[table])}All of it: sluice run {pipeline} --mode refresh --table {table}.\n"  # type: ignore[arg-type]
        f"What reads it follows in the next run: sluice run {pipeline}",
        soft_wrap=True,
    )
