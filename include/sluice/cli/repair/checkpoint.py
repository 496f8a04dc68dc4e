"""`sluice checkpoint`: shows how far each flow has read, and makes one start anew."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sluice.cli.name_lookup import select_pipelines, split_table_name
from sluice.cli.printing import AsJson, confirm_repair, escaping_console, format_duration, print_json, print_rows
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.errors import UsageError
from sluice.flows.progress import checkpoints, positions
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.flows.progress.positions import FlowProgress
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.printable import count_noun, format_size
from sluice.record_states import WAITING
from sluice.runs.lease import lock
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings

checkpoint = typer.Typer(help="Show how far each flow has come, or make one start anew.", no_args_is_help=True)


@checkpoint.command("show")
def show_checkpoints(
    name: Annotated[str | None, typer.Argument(metavar="[PIPELINE[.TABLE]]", help="Otherwise all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the flows' checkpoints: age, last batch, unfinished batches, positions in the inputs."""
    settings = Settings.current()
    pipeline, _, table = (name or "").partition(".")
    rows = [
        row
        for found in select_pipelines(settings, pipeline or None)
        for row in _load_flow_checkpoints(load_pipeline_lake(settings, found), table)
    ]
    if as_json:
        print_json({"checkpoints": rows})
        return
    columns = ("flow", "checkpoint", "age", "last batch", "unfinished", "positions", "made for", "next run")
    print_rows([_checkpoint_as_row(row) for row in rows], columns)


@checkpoint.command("reset")
def reset_checkpoint(
    name: Annotated[str, typer.Argument(metavar="PIPELINE.TABLE", help="The table whose flow is to start anew.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a flow start anew. Its table stays as it is until the next run, which reads everything again; no row comes twice."""
    settings = Settings.current()
    pipeline, table = split_table_name(settings, name)
    books = PipelineBooks(settings, load_declaration_graph(settings, pipeline))
    declared = books.graph[table]
    _refuse_stateful_stream(pipeline, declared)
    flow, folder = books.flow_checkpoints(declared)
    memory = read_flow_memory(folder, flow)
    if memory is None:
        _print_reset_outcome(
            {"flow": flow, "reset": False}, f"'{flow}' has no checkpoint; its next run reads everything anyway.", as_json
        )
        return
    consequence = _describe_reset_consequence(books, declared.name)
    if not as_json:
        escaping_console().print(consequence, soft_wrap=True)
    confirm_repair(f"Resetting the checkpoint of '{flow}'", "Reset the checkpoint?", yes)
    with lock.hold_lease_without_spark(books.records, "reset", "Reset when it has ended."):
        checkpoints.reset_checkpoint(folder, flow)
    told = {"flow": flow, "reset": True, "next_run": consequence}
    _print_reset_outcome(told, f"The checkpoint of '{flow}' is reset. Run: sluice run {pipeline}", as_json)


def _refuse_stateful_stream(pipeline: str, declared: Source | Dataset[Any]) -> None:
    """Raises UsageError for a stream with state."""
    if declared.kind.keeps_state:
        name = declared.name
        raise UsageError(
            f"'{name}' is a stream with state, which belongs to its table: if only the checkpoint were reset, "
            f"its runs would fail. Start both over, from its inputs as they are now: sluice run {pipeline} --mode refresh --table {name}"
        )


def _load_flow_checkpoints(lake: PipelineLake, table: str) -> list[dict[str, Any]]:
    books = PipelineBooks(lake.settings, lake.graph)
    wanted = [lake.graph[table]] if table else list(lake.graph)
    now = datetime.now(UTC)
    rows = []
    for declared in wanted:
        flow, folder = books.flow_checkpoints(declared)
        row: dict[str, Any] = {"pipeline": books.records.pipeline, "table": declared.name, "flow": flow}
        try:
            progress = positions.read_flow_progress(folder, flow)
            standing = lag.read_flow_standing(books, declared)
            row |= {"problem": None, "next": standing.anew, "stuck": standing.stuck}
        except UsageError as error:
            progress = None
            row |= {"problem": str(error), "next": None, "stuck": None}
        rows.append(row | _describe_progress(books, progress, now))
    return rows


def _describe_progress(books: PipelineBooks, progress: FlowProgress | None, now: datetime) -> dict[str, Any]:
    if progress is None:
        return {"identity": None}
    return {
        "identity": progress.identity,
        "reason": progress.reason,
        "made_at": progress.made_at,
        "age_seconds": int((now - progress.made_at).total_seconds()) if progress.made_at else None,
        "last_batch": progress.batch,
        "finished_at": progress.finished_at,
        "unfinished": list(progress.unfinished),
        "positions": {
            name: {**(asdict(at) if at else {"version": None}), "latest": log.latest_table_version(_locate_input(books, name))}
            for name in progress.tables
            for at in [progress.positions.get(name)]
        },
    }


def _locate_input(books: PipelineBooks, name: str) -> str:
    """The path of an input: a declared table, or one of the pipeline's own."""
    return books.path(name) if name in {declared.name for declared in books.graph} else books.records.bookkeeping(name)


def _checkpoint_as_row(found: dict[str, Any]) -> dict[str, Any]:
    finished = found.get("finished_at")
    now = datetime.now(UTC)
    return {
        "flow": f"{found['pipeline']}.{found['flow']}",
        "checkpoint": found["identity"],
        "age": format_duration(now - found["made_at"]) if found.get("made_at") else None,
        "last batch": f"{found['last_batch']}, {format_duration(now - finished)} ago" if finished else None,
        "unfinished": ", ".join(str(batch) for batch in found.get("unfinished", [])) or None,
        "positions": ", ".join(_describe_position(name, at) for name, at in found.get("positions", {}).items()),
        "made for": found.get("reason"),
        "next run": found["problem"] or found["stuck"] or (f"starts anew: {found['next']}" if found["next"] else "goes on"),
    }


def _describe_position(name: str, at: dict[str, Any]) -> str:
    """The last version read of an input, and its latest version."""
    if at["version"] is None:
        return f"{name} not read yet"
    taken = at["version"] if at["taken"] else at["version"] - 1
    return f"{name} {taken} of {at['latest']}"


def _describe_reset_consequence(books: PipelineBooks, table: str) -> str:
    """What the next run will do after a reset."""
    declared = books.graph[table]
    flow, name = lag.measure_lag_from_start(books, lag.read_flow_standing(books, declared)), f"{books.records.pipeline}.{table}"
    if table in books.graph.sources:
        known = [row for row in books.deliveries if row["source"] == table]
        with_outcome = sum(row["state"] != WAITING for row in known)
        return (
            f"The next run reads the list of deliveries of {name} from the start ({len(known):,}) and leaves out those that have "
            f"an outcome ({with_outcome:,}). Nothing is ingested twice."
        )
    if table in books.graph.tables:
        return (
            f"The next run folds {name} again from all valid deliveries: {flow.deliveries:,}, {count_noun(flow.rows or 0, 'row')} of bronze. "
            "Only what differs is written."
        )
    return f"The next run recomputes {name} in full from {', '.join(declared.reads)} ({format_size(flow.bytes)}). Only what differs is written."


def _print_reset_outcome(found: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        escaping_console().print(text, soft_wrap=True)
