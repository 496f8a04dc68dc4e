"""autoload_to_table itself: checks what it is given, sees that the table is there, and starts the ingestion."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.autoload import checkpoint, options, sessions, targets
from sluice.autoload.checkpoint import AutoloadPlaces, CheckpointPurpose
from sluice.autoload.query import Autoload
from sluice.autoload.targets import AutoloadTarget
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import Pipeline
from sluice.errors import UsageError
from sluice.flows.bronze import append
from sluice.ingest.schema import schema_log
from sluice.lake import log
from sluice.lake.workspace import Workspace
from sluice.runs.lease import lock
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIPELINE = Pipeline(
    name="autoload", description="A call of autoload_to_table.", owner="autoload_to_table", layers=("sluice.bronze",)
)


def autoload_to_table(
    data_source: str | Path, source_format: str, table_name: str | Path, checkpoint_directory: str | Path, **options_: object
) -> Autoload:
    """Ingest everything in a folder that this table has not got yet. The four arguments suffice.

    data_source: a folder on a local disk; its sub-folders are searched. source_format: json, csv, parquet, text or binary.
    table_name: a table in the catalog of the active Spark session ("visits", "gym.visits") or a path ("/lake/visits"); it is made
    unless it is there. checkpoint_directory: holds all that is remembered: deliveries and what became of each, the schema log,
    quarantine. One for each pair of source and table. options_: those of `sluice.declare.Source` by name (schema, schema_hints,
    infer_types, schema_evolution, pattern ...), or as Auto Loader spells them ("cloudFiles.schemaHints").

    Returns at once; `awaitTermination()` waits until everything that is there now is in the table. Call it again when there is more.
    Raises UsageError for a wrong argument, LeaseHeld while another run has the checkpoint directory.
    """
    caller = sessions.find_active_session()
    data, folder = (
        targets.resolve_local_folder(data_source, "data_source"),
        targets.resolve_local_folder(checkpoint_directory, "checkpoint_directory"),
    )
    target = targets.find_autoload_target(caller, str(table_name))
    known = checkpoint.read_checkpoint_purpose(folder)
    source = options.build_autoload_source(known.source if known else target.short, data.name, source_format, options_)
    if not data.is_dir():
        raise UsageError(f"autoload_to_table: there is no folder {data} (data_source). Create it and put files there.")
    _refuse_nested_folders(data, folder, target.path)
    session = sessions.open_sibling_session(caller)
    run = uuid.uuid4().hex[:12]
    with ExitStack() as stack:
        what, remedy = f"The checkpoint directory {folder}", "Wait for it (awaitTermination), then call again."
        stack.enter_context(lock.hold_lease_in_folder(folder, session, run, 0, what, remedy))
        purpose, workspace = _prepare_ingestion(session, run, source, data, folder, target)
        return Autoload(workspace, source, target.said, purpose.first_delivery, stack.pop_all())


def _prepare_ingestion(
    session: SparkSession, run: str, source: Source, data: Path, folder: Path, target: AutoloadTarget
) -> tuple[CheckpointPurpose, Workspace]:
    """Under the lease: see that the directory is this source's and table's, and that the table is there."""
    declared = build_declaration_graph(_PIPELINE, [source])

    def workspace_at(path: str) -> Workspace:
        nothing = folder / "none"  # no secrets, no truth: nothing of a lake is asked for
        settings = Settings(folder, str(folder), data.parent, nothing, nothing, nothing)
        return Workspace(settings, declared, session, run, elsewhere=AutoloadPlaces(folder, data, path))

    purpose = checkpoint.read_checkpoint_purpose(folder)
    workspace = workspace_at(target.path or "")
    if purpose:
        checkpoint.refuse_foreign_checkpoint(folder, purpose, data, source.format, target.path)
    workspace.note(f"bronze_{source.name}")
    is_new = not targets.has_delta_table(target)
    if not is_new:
        targets.refuse_conflicting_types(session, target, source)
    path = targets.create_autoload_target(session, target, append.bronze_table_shape(workspace, source))
    _refuse_nested_folders(data, folder, path)  # of a name, only now it is known where it lies
    workspace = workspace_at(path)
    if purpose is None:
        first = checkpoint.choose_first_delivery(is_new)
        purpose = CheckpointPurpose(source.name, str(data), source.format, path, log.read_table_id(path), is_new, first)
        checkpoint.write_checkpoint_purpose(folder, purpose)
    if not purpose.made_here:
        _adopt_existing_columns(workspace, source)
    return purpose, workspace


def _adopt_existing_columns(workspace: Workspace, source: Source) -> None:
    """The columns of a table that was there before are those that records are read into, in their types."""
    if source.widen_types:
        raise UsageError(
            "autoload_to_table: widen_types makes a table anew, which is not done to one that was there before. Leave it out."
        )
    if schema_log.read_latest_schema_version(workspace.schemas(source.table)) is None:
        own = targets.read_own_columns(workspace.session, workspace.path(source.name))
        schema_log.write_schema_version(workspace.schemas(source.table), own, workspace.run, "the table's own columns")


def _refuse_nested_folders(data: Path, folder: Path, table: str | None) -> None:
    """What is written must not lie where it is read from, nor the data in the table, whose VACUUM would remove it."""
    path = Path(table).resolve() if table else None
    for what, place in (("checkpoint directory", folder), ("table", path)):
        if place is not None and (place == data or data in place.parents):
            raise UsageError(
                f"autoload_to_table: the {what} {place} lies in {data}, whose files are read. Choose a place beside it."
            )
    if path is not None and (path in data.parents or path in folder.parents or path == folder):
        inner = data if path in data.parents else folder
        raise UsageError(
            f"autoload_to_table: {inner} lies in the table {path}, whose VACUUM would remove it. Choose a place beside it."
        )
