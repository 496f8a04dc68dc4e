"""The kinds of declarations: how messages name each kind, and which engine functions run, plan, measure, check and test it.

Each function is named, and loaded when it is called (`NamedFunction`), so that Airflow can parse declarations without loading Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.named_functions import NamedFunction

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sluice.declare.interval import Interval
    from sluice.flows.column_lineage import Leaves
    from sluice.ingest.deliveries.arrivals import Look, SourceChanges
    from sluice.ingest.deliveries.known_files import KnownFiles
    from sluice.ingest.formats import ParsedBlock
    from sluice.ingest.reading.examination import Delivery, ExaminedDelivery
    from sluice.ingest.reading.workers import LocatedDelivery
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace
    from sluice.locations import Location
    from sluice.runs.execution.parallel_flows import Flow
    from sluice.runs.planning.steps import PlannedStep
    from sluice.runs.planning.transforms import Examination
    from sluice.runs.status.books import PipelineBooks
    from sluice.runs.status.lag import FlowLag
    from sluice.settings import Settings
    from sluice.testing.running import TrialRun
    from sluice.verification.recomputation import Recomputation


@dataclass(frozen=True, kw_only=True)
class DatasetKind:
    """One kind of declaration. To add a kind, write one of these, the functions it names, and a class that has it as its `kind`.

    name: what people call it. label: how a message begins, as in "View 'day'". noun: how a message refers to it further on, as in "table
    'day'". order: its position among a pipeline's declarations; within one order, each declaration comes after those it reads. in_files: its
    records come from files of a landing folder. sets_rows_aside: it has a quarantine. may_ask_clock: its expectations may compare with the
    present, because it is never replayed. may_read: the names of the kinds it may read; None allows any. reads_others: the end of the
    error message about an input of another kind, which it may name as {read}. reads_computed: it may read computed views, and is then made
    from what those read. keeps_state: its stream keeps state, which belongs to its table: neither can start over without the other.

    What is done with a declaration, which is an argument of each function; None where the kind takes no part in it:
    examine_declaration: gives the columns that it stores, or None where they are not known yet. preview_rows: (declaration, frames of its
    inputs by name) gives a frame as it is stored, whose plan tells where columns come from; None: nothing traces them. make_test_rows:
    gives its rows in a test, or None where the test gives nothing that they could be made of.
    """

    name: str
    label: str
    order: int
    noun: str = "table"
    in_files: bool = False
    sets_rows_aside: bool = False
    may_ask_clock: bool = False
    may_read: tuple[str, ...] | None = None
    reads_others: str = ""
    reads_computed: bool = False
    keeps_state: bool = False
    examine_declaration: NamedFunction[[Examination, Any], StructType | None] | None = None
    preview_rows: NamedFunction[[Any, Leaves], DataFrame] | None = None
    make_test_rows: NamedFunction[[TrialRun, Any], DataFrame | None] | None = None

    def lacking_function_error(self, role: str) -> DeclarationError:
        """The error of a kind that was asked for what it names no function for."""
        return DeclarationError(f"A {self.name} has no function for '{role}': name one in its DatasetKind.")


@dataclass(frozen=True, kw_only=True)
class FlowKind(DatasetKind):
    """A kind of declaration that has a flow, which runs, is planned and is measured by these functions. Status, plan and quiet runs need all.

    choose_flow: (workspace, declaration, whether the run names it) gives the flow of this run, or None. plan_step: (books, declaration, its
    lag, the steps before, whether it is refreshed). measure_lag: gives what waits for it. measure_lag_anew: (books, declaration, its lag)
    gives that as if it started anew. read_standing: gives its lag by its checkpoint alone. find_end_of_quiet: (declaration, the instant of a
    run, what gives a table's path) gives the next instant at which time alone has work for its flow, if nothing new comes.

    Those that a kind may lack: plan_replay: (books, declaration, its lag, interval, the steps before); None: a replay reaches it as any run
    does. recompute_rows: gives by plain batch code the rows that its table should have, or None where there is nothing yet that they could
    be made of; without it, nothing can be verified. replay_quarantined: (workspace, declaration, rows of its quarantine, report) judges them
    again.
    """

    choose_flow: NamedFunction[[Workspace, Any, bool], Flow | None]
    plan_step: NamedFunction[[PipelineBooks, Any, FlowLag, Sequence[PlannedStep], bool], PlannedStep]
    measure_lag: NamedFunction[[PipelineBooks, Any], FlowLag]
    measure_lag_anew: NamedFunction[[PipelineBooks, Any, FlowLag], FlowLag]
    read_standing: NamedFunction[[PipelineBooks, Any], FlowLag]
    find_end_of_quiet: NamedFunction[[Any, datetime, Callable[[str], str]], datetime]
    examine_declaration: NamedFunction[[Examination, Any], StructType | None] = field()  # here it must be given
    plan_replay: NamedFunction[[PipelineBooks, Any, FlowLag, Interval, Sequence[PlannedStep]], PlannedStep] | None = None
    recompute_rows: NamedFunction[[Recomputation, Any], DataFrame | None] | None = None
    replay_quarantined: NamedFunction[[Workspace, Any, DataFrame, FlowReport], None] | None = None


@dataclass(frozen=True, kw_only=True)
class SourceKind(FlowKind):
    """A kind of source. Each further field names a function that handles its deliveries; its first argument is the source, if it gets that.

    find_folder: (source, settings, the pipeline's landing folder) returns the folder that delivery names are relative to.
    find_arrivals: (source, landing folder, what is known of files, how it is looked) returns what has arrived and what has vanished.
    group_deliveries: (source, delivery rows) returns them in micro-batches within the source's limits.
    count_waiting: (delivery names) returns how many records they have, or None if that is unknown.
    examine_deliveries: returns the result of examining each. examine_unread_deliveries: (source, deliveries, numbers judged before)
    returns the same for deliveries of which bronze has nothing.
    read_blocks: (source, a located delivery, columns) returns its records.
    find_unchanged: (source, landing folder, rows of the delivery ledger) returns the numbers of those still readable as discovered.
    find_warnings: (source, paths of deliveries and outcomes) returns what must be attended to before records are lost.
    """

    find_folder: NamedFunction[[Any, Settings, Location], Location]
    find_arrivals: NamedFunction[[Any, Location, KnownFiles, Look], SourceChanges]
    group_deliveries: NamedFunction[[Any, Sequence[Any]], list[list[Any]]]
    count_waiting: NamedFunction[[Sequence[str]], int | None]
    examine_deliveries: NamedFunction[[Any, list[Delivery]], list[ExaminedDelivery]]
    examine_unread_deliveries: NamedFunction[[Any, list[Delivery], Container[int]], list[ExaminedDelivery]]
    read_blocks: NamedFunction[[Any, LocatedDelivery, pa.Schema], Iterator[ParsedBlock]]
    find_unchanged: NamedFunction[[Any, Location, Iterable[Mapping[str, Any]]], set[int]]
    find_warnings: NamedFunction[[Any, str, str], list[str]]


FILE_SOURCE = SourceKind(
    name="file source",
    label="Source",
    noun="source",
    order=0,
    in_files=True,
    sets_rows_aside=True,
    choose_flow=NamedFunction("sluice.runs.execution.flow_choice:choose_bronze_flow"),
    plan_step=NamedFunction("sluice.runs.planning.steps:plan_bronze_step"),
    plan_replay=NamedFunction("sluice.runs.planning.steps:plan_bronze_replay"),
    measure_lag=NamedFunction("sluice.runs.status.lag:measure_bronze_lag"),
    measure_lag_anew=NamedFunction("sluice.runs.status.lag:measure_bronze_lag_anew"),
    read_standing=NamedFunction("sluice.runs.status.lag:read_bronze_standing"),
    find_end_of_quiet=NamedFunction("sluice.runs.execution.quiet_marking:find_end_of_quiet_source"),
    examine_declaration=NamedFunction("sluice.runs.planning.transforms:find_source_schema"),
    replay_quarantined=NamedFunction("sluice.flows.quarantine.readmission:replay_refused_deliveries"),
    find_folder=NamedFunction("sluice.ingest.deliveries.listing:locate_source_folder"),
    find_arrivals=NamedFunction("sluice.ingest.deliveries.arrivals:find_arrived_files"),
    group_deliveries=NamedFunction("sluice.ingest.deliveries.discovery:group_files_by_size"),
    count_waiting=NamedFunction("sluice.ingest.deliveries.listing:count_no_records"),
    examine_deliveries=NamedFunction("sluice.ingest.reading.examination:examine_files"),
    examine_unread_deliveries=NamedFunction("sluice.ingest.reading.examination:examine_unread_files"),
    read_blocks=NamedFunction("sluice.ingest.reading.workers:read_file_blocks"),
    find_unchanged=NamedFunction("sluice.ingest.deliveries.landed_file:find_unchanged_files"),
    find_warnings=NamedFunction("sluice.ingest.deliveries.listing:warn_of_nothing"),
)
TOPIC = SourceKind(
    name="topic",
    label="Source",
    noun="source",
    order=0,
    sets_rows_aside=True,
    choose_flow=FILE_SOURCE.choose_flow,
    plan_step=FILE_SOURCE.plan_step,
    plan_replay=FILE_SOURCE.plan_replay,
    measure_lag=FILE_SOURCE.measure_lag,
    measure_lag_anew=FILE_SOURCE.measure_lag_anew,
    read_standing=FILE_SOURCE.read_standing,
    find_end_of_quiet=NamedFunction("sluice.runs.execution.quiet_marking:find_end_of_quiet_topic"),
    examine_declaration=FILE_SOURCE.examine_declaration,
    replay_quarantined=NamedFunction("sluice.flows.quarantine.readmission:refuse_replay_of_topic"),
    find_folder=NamedFunction("sluice.ingest.topics.offset_ranges:locate_options_folder"),
    find_arrivals=NamedFunction("sluice.ingest.deliveries.arrivals:find_arrived_offsets"),
    group_deliveries=NamedFunction("sluice.ingest.deliveries.discovery:group_offset_ranges"),
    count_waiting=NamedFunction("sluice.ingest.topics.offset_ranges:count_offsets"),
    examine_deliveries=NamedFunction("sluice.ingest.reading.kafka:examine_offset_ranges"),
    examine_unread_deliveries=NamedFunction("sluice.ingest.reading.kafka:examine_unread_offset_ranges"),
    read_blocks=NamedFunction("sluice.ingest.reading.kafka:read_topic_blocks"),
    find_unchanged=NamedFunction("sluice.ingest.topics.offsets:find_kept_deliveries"),
    find_warnings=NamedFunction("sluice.ingest.topics.offsets:find_retention_warnings"),
)
TABLE = FlowKind(
    name="table",
    label="Table",
    order=1,
    sets_rows_aside=True,
    may_read=(FILE_SOURCE.name, TOPIC.name),
    reads_others=", which is a {read}; a @table reads sources and temporary views. Make the shared step a @temporary_view, or this one "
    "a @materialized_view.",
    choose_flow=NamedFunction("sluice.runs.execution.flow_choice:choose_silver_flow"),
    plan_step=NamedFunction("sluice.runs.planning.steps:plan_silver_step"),
    plan_replay=NamedFunction("sluice.runs.planning.steps:plan_silver_replay"),
    measure_lag=NamedFunction("sluice.runs.status.lag:measure_silver_lag"),
    measure_lag_anew=NamedFunction("sluice.runs.status.lag:measure_silver_lag_anew"),
    read_standing=NamedFunction("sluice.runs.status.lag:read_silver_standing"),
    find_end_of_quiet=NamedFunction("sluice.runs.execution.quiet_marking:find_end_of_quiet_dataset"),
    examine_declaration=NamedFunction("sluice.runs.planning.transforms:examine_table"),
    preview_rows=NamedFunction("sluice.flows.column_lineage:preview_table_rows"),
    make_test_rows=NamedFunction("sluice.testing.running:make_table_rows"),
    recompute_rows=NamedFunction("sluice.verification.recomputation:recompute_table"),
    replay_quarantined=NamedFunction("sluice.flows.quarantine.readmission:refold_quarantined_rows"),
)
WINDOWED_STREAM = FlowKind(
    name="windowed stream",
    label="Stream",
    order=2,
    keeps_state=True,
    may_read=(FILE_SOURCE.name, TOPIC.name, TABLE.name),
    reads_others="; a @windowed reads sources and tables, whose rows are mostly only added.",
    choose_flow=NamedFunction("sluice.runs.execution.flow_choice:choose_stream_flow"),
    plan_step=NamedFunction("sluice.runs.planning.steps:plan_stream_step"),
    measure_lag=NamedFunction("sluice.runs.status.lag:measure_stream_lag"),
    measure_lag_anew=NamedFunction("sluice.runs.status.lag:measure_lag_of_all_inputs"),
    # The checkpoint alone does not show whether the stream can go on.
    read_standing=NamedFunction("sluice.runs.status.lag:measure_stream_lag"),
    find_end_of_quiet=NamedFunction("sluice.runs.execution.quiet_marking:find_end_of_quiet_stream"),
    examine_declaration=NamedFunction("sluice.runs.planning.transforms:examine_stream"),
    preview_rows=NamedFunction("sluice.flows.column_lineage:preview_stream_rows"),
)
MATERIALIZED_VIEW = FlowKind(
    name="materialized view",
    label="View",
    order=3,
    may_ask_clock=True,
    reads_computed=True,
    choose_flow=NamedFunction("sluice.runs.execution.flow_choice:choose_gold_flow"),
    plan_step=NamedFunction("sluice.runs.planning.steps:plan_view_step"),
    measure_lag=NamedFunction("sluice.runs.status.lag:measure_view_lag"),
    measure_lag_anew=NamedFunction("sluice.runs.status.lag:measure_lag_of_all_inputs"),
    read_standing=NamedFunction("sluice.runs.status.lag:read_view_standing"),
    find_end_of_quiet=NamedFunction("sluice.runs.execution.quiet_marking:find_end_of_quiet_dataset"),
    examine_declaration=NamedFunction("sluice.runs.planning.transforms:examine_view"),
    preview_rows=NamedFunction("sluice.flows.column_lineage:preview_view_rows"),
    make_test_rows=NamedFunction("sluice.testing.running:make_view_rows"),
    recompute_rows=NamedFunction("sluice.verification.recomputation:recompute_view"),
)
COMPUTED_VIEW = DatasetKind(
    name="computed view",
    label="View",
    noun="@view",
    order=4,
    examine_declaration=NamedFunction("sluice.runs.planning.transforms:examine_computed_view"),
    preview_rows=NamedFunction("sluice.flows.column_lineage:preview_computed_rows"),
    make_test_rows=NamedFunction("sluice.testing.running:make_computed_view_rows"),
)
TEMPORARY_VIEW = DatasetKind(
    name="temporary view",
    label="Temporary view",
    order=4,
    make_test_rows=NamedFunction("sluice.testing.running:make_temporary_view_rows"),
)
CHANGE_TARGET = DatasetKind(name="change target", label="Table", order=4)
"""The kind of what `auto_cdc` declares. A pipeline holds the tables and the view it expands to instead, each of its own kind."""

KINDS = (FILE_SOURCE, TOPIC, TABLE, WINDOWED_STREAM, MATERIALIZED_VIEW, COMPUTED_VIEW, TEMPORARY_VIEW, CHANGE_TARGET)
