"""autoload_to_table: checks its arguments, makes the table if needed, and starts an ingestion to wait for, stop or query."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

from sluice.autoload import autoload_target, checkpoint, options
from sluice.autoload.autoload_target import AutoloadTarget
from sluice.autoload.checkpoint import AutoloadPaths, CheckpointPurpose
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import Pipeline
from sluice.delivery_rows import RECORDED
from sluice.errors import SluiceError, StopRequested, UsageError
from sluice.flows.bronze import accounting, append
from sluice.flows.bronze.table_shape import bronze_table_shape
from sluice.ingest import delivery_tables, schema_log
from sluice.ingest.deliveries import discovery
from sluice.ingest.deliveries.discovery import DiscoveryOptions
from sluice.ingest.landing import cleaning
from sluice.lake import log
from sluice.lake.commit_marks import format_commit_mark
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import BRONZE
from sluice.record_tables import create_record_table, has_many_small_files, join_small_files
from sluice.runs.failures import describe_error_without_values
from sluice.runs.lease.lock import LeaseRequest, hold_lease_in_folder
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIPELINE = Pipeline(
    name="autoload", description="A call of autoload_to_table.", owner="autoload_to_table", layers=("sluice.bronze",)
)
_COUNTS = ("rows", "rescued", "quarantined", "suppressed")


def autoload_to_table(
    data_source: str | Path, source_format: str, table_name: str | Path, checkpoint_directory: str | Path, **options_: object
) -> Autoload:
    """Ingests everything in a folder that the table does not have yet. The four arguments suffice.

    data_source: a folder on a local disk, searched with its sub-folders. source_format: json, csv, parquet, text or binary. table_name:
    a table in the catalog of the active Spark session ("visits", "gym.visits") or a path ("/lake/visits"); it is made if it does not
    exist. checkpoint_directory: holds all that is remembered: the deliveries and their outcomes, the schema log, the quarantine. Use
    one for each pair of source and table. options_: those of `sluice.declare.Source` by name (schema, schema_hints, infer_types,
    schema_evolution, pattern ...), or as Auto Loader spells them ("cloudFiles.schemaHints").

    Returns at once; `awaitTermination()` waits until everything that is there now is in the table. Call it again when there is more.
    Raises UsageError for a wrong argument, LeaseHeld while another run has the checkpoint directory.
    """
    caller = autoload_target.find_active_session()
    data, folder = (
        autoload_target.resolve_local_folder(data_source, "data_source"),
        autoload_target.resolve_local_folder(checkpoint_directory, "checkpoint_directory"),
    )
    target = autoload_target.find_autoload_target(caller, str(table_name))
    known = checkpoint.read_checkpoint_purpose(folder)
    source = options.build_autoload_source(known.source if known else target.short, data.name, source_format, options_)
    if not data.is_dir():
        raise UsageError(f"autoload_to_table: there is no folder {data} (data_source). Create it and put files there.")
    _refuse_nested_folders(data, folder, target.path)
    session = autoload_target.open_sibling_session(caller)
    run = uuid.uuid4().hex[:12]
    with ExitStack() as stack:
        request = LeaseRequest(run, f"The checkpoint directory {folder}", "Wait for it (awaitTermination), then call again.")
        stack.enter_context(hold_lease_in_folder(folder, session, request))
        purpose, workspace = _prepare_ingestion(session, run, source, data, folder, target)
        return Autoload(workspace, source, target.said, purpose.first_delivery, stack.pop_all())


def _prepare_ingestion(
    session: SparkSession, run: str, source: Source, data: Path, folder: Path, target: AutoloadTarget
) -> tuple[CheckpointPurpose, Workspace]:
    """Under the lease, checks that the directory belongs to this source and table, and that the table exists."""
    declared = build_declaration_graph(_PIPELINE, [source])

    def workspace_at(path: str) -> Workspace:
        nothing = folder / "none"  # no secrets, no truth: nothing of a lake is needed
        settings = Settings(folder, str(folder), data.parent, nothing, nothing, nothing)
        return Workspace(settings, declared, session, run, elsewhere=AutoloadPaths(folder, data, path))

    purpose = checkpoint.read_checkpoint_purpose(folder)
    workspace = workspace_at(target.path or "")
    if purpose:
        checkpoint.refuse_foreign_checkpoint(folder, purpose, data, source.format, target.path)
    workspace.mark_next_commits(workspace.graph.flow_name(source))
    is_new = not autoload_target.has_delta_table(target)
    if not is_new:
        autoload_target.refuse_conflicting_types(session, target, source)
    path = autoload_target.create_autoload_target(session, target, bronze_table_shape(workspace, source))
    _refuse_nested_folders(data, folder, path)  # the location of a named table is known only now
    workspace = workspace_at(path)
    if purpose is None:
        first = checkpoint.choose_first_delivery(is_new)
        purpose = CheckpointPurpose(source.name, str(data), source.format, path, log.read_table_id(path), is_new, first)
        checkpoint.write_checkpoint_purpose(folder, purpose)
    if not purpose.made_here:
        _adopt_existing_columns(workspace, source)
    return purpose, workspace


def _adopt_existing_columns(workspace: Workspace, source: Source) -> None:
    """Makes the columns of an existing table those that records are read into, with their types."""
    if source.widen_types:
        raise UsageError(
            "autoload_to_table: widen_types may make a table anew, which is not done to an existing one. Leave it out."
        )
    if schema_log.read_latest_schema_version(workspace.schemas(source.table)) is None:
        own = autoload_target.read_own_columns(workspace.session, workspace.path(source.name))
        schema_log.write_schema_version(workspace.schemas(source.table), own, workspace.run, "the table's own columns")


def _refuse_nested_folders(data: Path, folder: Path, table: str | None) -> None:
    """Refuses output inside the folder that is read, and data inside the table, where VACUUM would remove it."""
    path = Path(table).resolve() if table else None
    for what, given in (("checkpoint directory", folder), ("table", path)):
        if given is not None and (given == data or data in given.parents):
            raise UsageError(
                f"autoload_to_table: the {what} {given} lies in {data}, whose files are read. Choose a folder outside it."
            )
    if path is not None and (path in data.parents or path in folder.parents or path == folder):
        inner = data if path in data.parents else folder
        raise UsageError(
            f"autoload_to_table: {inner} lies in the table {path}, whose VACUUM would remove it. Choose a folder outside it."
        )


class Autoload:
    """One run over a folder: takes everything that is there now, then ends. Like a StreamingQuery with trigger availableNow.

    id: that of the source in its checkpoint directory. runId: that of this run, which the table's history shows. name: the table's.
    """

    def __init__(self, workspace: Workspace, source: Source, name: str, first_delivery: int, lease: ExitStack) -> None:
        self.name, self.id, self.runId = name, source.name, workspace.run
        self._workspace, self._source, self._first, self._lease = workspace, source, first_delivery, lease
        self._error: SluiceError | None = None
        self._report = FlowReport(flow=source.name, layer=BRONZE.name)
        self._thread = InheritableThread(target=self._work, name=f"autoload_to_table {name}")
        self._thread.start()

    @property
    def isActive(self) -> bool:
        """Whether it is still running."""
        return bool(self._thread.is_alive())

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Waits until it ends, or for so many seconds. Returns whether it has ended. Raises the error it failed with."""
        self._thread.join(timeout)
        if self.isActive:
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Ends it after the current batch, and waits for that. What is committed stays; the next call goes on from there."""
        request = self._workspace.paths.stop_request(self.runId)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.touch()
        self._thread.join()
        request.unlink(missing_ok=True)

    def exception(self) -> SluiceError | None:
        """The error it failed with, or None."""
        return self._error

    @property
    def notes(self) -> list[str]:
        """Further remarks on this run: why it started anew, how many files were archived or deleted."""
        return list(self._report.notes)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The batches of this run, oldest first, counted from what is committed, each in the form of `lastProgress`."""
        batches: dict[int | None, list[dict[str, Any]]] = {}
        for row in delivery_tables.read_delivery_ledger_rows(self._workspace.outcomes):
            if row["run"] == self.runId:
                batches.setdefault(None if row["batch"] is None else int(str(row["batch"])), []).append(row)
        # Deliveries taken in parts of a batch, or one by one, have no batch number.
        return [
            self._progress(batch, rows) for batch, rows in sorted(batches.items(), key=lambda one: (one[0] is None, one[0] or 0))
        ]

    @property
    def lastProgress(self) -> dict[str, Any]:
        """The last batch: its number (None before the first), its deliveries with their outcomes, and numInputRows, the records read.

        Of these records, `rows` are in the table, `rescued` of them with something in _rescued_data, and `quarantined` are set aside.
        """
        return (self.recentProgress or [self._progress(None, [])])[-1]

    def _progress(self, batch: int | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
        counts = {name: sum(int(row[name] or 0) for row in rows) for name in _COUNTS}
        at = delivery_tables.sort_outcomes_by_recording(rows)[-1][RECORDED] if rows else None
        return {
            "name": self.name,
            "id": self.id,
            "runId": self.runId,
            "timestamp": at.isoformat() if at else None,
            "batch": batch,
            "batchId": batch,
            "deliveries": len(rows),
            "states": dict(Counter(str(row["state"]) for row in rows)),
            "numInputRows": counts["rows"] + counts["quarantined"] + counts["suppressed"],
            **counts,
        }

    def _work(self) -> None:
        workspace, source = self._workspace, self._source
        try:
            with self._lease, autoload_target.given_back:
                accounting.regain_deliveries(workspace, [source], own_bronze=False)
                found = discovery.discover_deliveries(
                    [source], workspace.landing, workspace.deliveries, workspace.run, DiscoveryOptions(first=self._first)
                )
                found.raise_first_refusal()
                create_record_table(workspace.outcomes, delivery_tables.OUTCOMES)
                append.run_bronze_flow(workspace, source, self._report)
                cleaned = cleaning.clean_landing_folder(
                    source, workspace.landing, workspace.deliveries, workspace.outcomes, workspace.run
                )
                self._report.notes += cleaned.notes(source)
                for records in (workspace.deliveries, workspace.outcomes):  # there is no stage `optimize` here
                    if has_many_small_files(records):
                        join_small_files(records, format_commit_mark(run=workspace.run))
        except StopRequested:
            pass
        except SluiceError as error:
            self._error = error
        except Exception as error:
            self._error = SluiceError(f"autoload_to_table into '{self.name}': {describe_error_without_values(error)}")
