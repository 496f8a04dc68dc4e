"""`sluice quarantine`: what was set aside and why. What the rows hold is shown only when asked for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluice.cli.places import table
from sluice.cli.printing import AsJson, Limit, PipelineName, console, print_json, print_rows
from sluice.cli.read import query
from sluice.runs import ledger
from sluice.settings import Settings, known_pipeline

app = typer.Typer(help="What was set aside, and why.", no_args_is_help=True)

PLAIN = ("_delivery", "_file", "_row", "reasons", "quarantined_at")
"""The columns of a quarantine that hold nothing of a record."""
RAW = ("record", "content")
_BY_REASON = """
SELECT reason, count(*) AS rows, count(DISTINCT _delivery) AS deliveries
FROM (SELECT unnest(reasons) AS reason, _delivery FROM t) GROUP BY reason ORDER BY rows DESC, reason
"""


@app.command("list")
def list_reasons(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Say by table and reason how many rows were set aside. A row with several reasons counts for each."""
    settings = Settings.current()
    known_pipeline(settings, pipeline)
    rows: list[dict[str, Any]] = []
    for found in ledger.tables(settings, pipeline):
        if found["layer"] == "quarantine":
            path = settings.table_path(pipeline, "quarantine", found["table"])
            rows += [{"table": found["table"], **row} for row in query(path, _BY_REASON)]
    if as_json:
        print_json({"pipeline": pipeline, "reasons": rows})
    elif rows:
        print_rows(rows, ("table", "reason", "rows", "deliveries"))
    else:
        console().print(f"Nothing of '{pipeline}' is in quarantine.")


@app.command()
def show(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose flow set the rows aside.")],
    raw: Annotated[bool, typer.Option("--raw", help="Also what the rows and files hold. May be personal data.")] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show rows in quarantine: where they came from and why they are there."""
    settings = Settings.current()
    _, _, path = table(settings, f"{known_pipeline(settings, pipeline)}.{name.removesuffix('_quarantine')}_quarantine")
    columns = (*PLAIN, *RAW) if raw else PLAIN
    rows = query(path, f"SELECT {', '.join(columns)} FROM t ORDER BY _delivery DESC, _row LIMIT {limit}")
    if as_json:
        print_json({"pipeline": pipeline, "table": name, "rows": rows})
    elif rows:
        print_rows(rows, columns)
    else:
        console().print(f"Nothing of '{pipeline}.{name}' is in quarantine.")
