"""The kinds of declarations: how messages name each kind, and which engine functions run, plan, measure, check and test it.

Functions are given as "module:function" and loaded when they are called, so that Airflow can parse declarations without loading Spark.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from sluice.errors import DeclarationError

Role = Literal[
    "run",
    "plan",
    "plan_replay",
    "measure_lag",
    "measure_lag_anew",
    "read_standing",
    "quiet",
    "check",
    "preview",
    "test",
    "recompute",
    "replay_quarantined",
]
DeliveryRole = Literal[
    "find_folder",
    "find_arrivals",
    "group",
    "count_waiting",
    "examine",
    "examine_to_ingest",
    "read_blocks",
    "find_unchanged",
    "find_warnings",
]


_OF_WHAT_RUNS: tuple[Role, ...] = ("plan", "measure_lag", "measure_lag_anew", "read_standing", "quiet", "check")
"""The roles that status, plan and quiet runs need of every kind that has a flow."""


@dataclass(frozen=True, kw_only=True)
class DatasetKind:
    """One kind of declaration. To add a kind, write one of these, the functions it names, and a class that has it as its `kind`.

    name: what people call it. label: how a message begins, as in "View 'day'". noun: how a message refers to it further on, as in "table
    'day'". order: its position among a pipeline's declarations; within one order, each declaration comes after those it reads. in_files: its
    records come from files of a landing folder. sets_rows_aside: it has a quarantine. may_ask_clock: its expectations may compare with the
    present, because it is never replayed. may_read: the names of the kinds it may read; None allows any. reads_others: the end of the
    error message about an input of another kind, which it may name as {read}. reads_computed: it may read computed views, and is then made
    from what those read. keeps_state: its stream keeps state, which belongs to its table: neither can start over without the other.

    What is done with a declaration, each by a function of these arguments; None where the kind takes no part in it:
    run: (workspace, declaration, whether the run names it) gives the flow of this run, or None. plan: (books, declaration, its lag, the
    steps before, whether it is refreshed) gives the step. plan_replay: (books, declaration, its lag, interval, steps before); None: a
    replay reaches it as any run does. measure_lag: (books, declaration) gives what waits for it. measure_lag_anew: (books, declaration,
    its lag) gives that as if it started anew. read_standing: (books, declaration) gives its lag by its checkpoint alone. quiet:
    (declaration, an instant, what gives a table's path) gives when, while nothing comes, the clock gives its flow something to do that
    a run of that instant has not done. check: (examination, declaration) gives the columns that it stores, or None where they are not
    known yet. preview: (declaration, frames of its inputs by name) gives a frame as it is stored, whose plan tells where columns come
    from; None: nothing traces them. test: (test run, declaration) gives its rows, or None where the test gives nothing that they could be made of.
    recompute: (recomputation, declaration) gives by plain batch code the rows that its table should have, or None where there is nothing
    yet that they could be made of; without it, nothing can be verified. replay_quarantined: (workspace, declaration, rows of its
    quarantine, report) judges them again.
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
    run: str | None = None
    plan: str | None = None
    plan_replay: str | None = None
    measure_lag: str | None = None
    measure_lag_anew: str | None = None
    read_standing: str | None = None
    quiet: str | None = None
    check: str | None = None
    preview: str | None = None
    test: str | None = None
    recompute: str | None = None
    replay_quarantined: str | None = None

    def __post_init__(self) -> None:
        lacking = [role for role in _OF_WHAT_RUNS if self.run is not None and getattr(self, role) is None]
        if lacking:
            raise DeclarationError(
                f"A {self.name} has a flow: its DatasetKind must also name functions for {', '.join(lacking)}."
            )


@dataclass(frozen=True, kw_only=True)
class SourceKind(DatasetKind):
    """A kind of source. Each further field names a function that handles its deliveries, with these arguments and results.

    find_folder: (source, settings, the pipeline's landing folder) returns the folder that delivery names are relative to.
    find_arrivals: (source, landing folder, what is known of files, how it is looked) returns what has arrived and what has vanished.
    group: (source, delivery rows) returns them in micro-batches within the source's limits.
    count_waiting: (delivery names) returns how many records they have, or None if that is unknown.
    examine: (source, deliveries) returns the result of examining each. examine_to_ingest: (source, deliveries, numbers judged before)
    returns the same for deliveries of which bronze has nothing.
    read_blocks: (source, a located delivery, columns) returns its records.
    find_unchanged: (source, landing folder, rows of the delivery ledger) returns the numbers of those still readable as discovered.
    find_warnings: (source, paths of deliveries and outcomes) returns what must be attended to before records are lost.
    """

    find_folder: str
    find_arrivals: str
    group: str
    count_waiting: str
    examine: str
    examine_to_ingest: str
    read_blocks: str
    find_unchanged: str
    find_warnings: str


def load_kind_function(kind: DatasetKind, role: Role | DeliveryRole) -> Any:
    """Returns the function that plays a role for a kind. Raises DeclarationError if the kind names none."""
    named: str | None = getattr(kind, role)
    if named is None:
        raise DeclarationError(f"A {kind.name} has no function for '{role}': name one in its DatasetKind.")
    return load_named_function(named)


def load_named_function(named: str) -> Any:
    """Returns the function that a text names, as "module:function"."""
    module, _, function = named.partition(":")
    return getattr(importlib.import_module(module), function)


FILE_SOURCE = SourceKind(
    name="file source",
    label="Source",
    noun="source",
    order=0,
    in_files=True,
    sets_rows_aside=True,
    run="sluice.runs.execution.flow_choice:choose_bronze_flow",
    plan="sluice.runs.planning.steps:plan_bronze_step",
    plan_replay="sluice.runs.planning.steps:plan_bronze_replay",
    measure_lag="sluice.runs.status.lag:measure_bronze_lag",
    measure_lag_anew="sluice.runs.status.lag:measure_bronze_lag_anew",
    read_standing="sluice.runs.status.lag:read_bronze_standing",
    quiet="sluice.runs.execution.quiet_marking:find_end_of_quiet_source",
    check="sluice.runs.planning.transforms:find_source_schema",
    replay_quarantined="sluice.flows.quarantine.readmission:replay_refused_deliveries",
    find_folder="sluice.ingest.deliveries.listing:locate_source_folder",
    find_arrivals="sluice.ingest.deliveries.arrivals:find_arrived_files",
    group="sluice.ingest.deliveries.discovery:group_files_by_size",
    count_waiting="sluice.ingest.deliveries.listing:count_no_records",
    examine="sluice.ingest.reading.examination:examine_files",
    examine_to_ingest="sluice.ingest.reading.examination:examine_unread_files",
    read_blocks="sluice.ingest.reading.workers:read_file_blocks",
    find_unchanged="sluice.ingest.deliveries.landed_file:find_unchanged_files",
    find_warnings="sluice.ingest.deliveries.listing:warn_of_nothing",
)
TOPIC = SourceKind(
    name="topic",
    label="Source",
    noun="source",
    order=0,
    sets_rows_aside=True,
    run=FILE_SOURCE.run,
    plan=FILE_SOURCE.plan,
    plan_replay=FILE_SOURCE.plan_replay,
    measure_lag=FILE_SOURCE.measure_lag,
    measure_lag_anew=FILE_SOURCE.measure_lag_anew,
    read_standing=FILE_SOURCE.read_standing,
    quiet="sluice.runs.execution.quiet_marking:find_end_of_quiet_topic",
    check=FILE_SOURCE.check,
    replay_quarantined="sluice.flows.quarantine.readmission:refuse_replay_of_topic",
    find_folder="sluice.ingest.topics.offset_ranges:locate_options_folder",
    find_arrivals="sluice.ingest.deliveries.arrivals:find_arrived_offsets",
    group="sluice.ingest.deliveries.discovery:group_offset_ranges",
    count_waiting="sluice.ingest.topics.offset_ranges:count_offsets",
    examine="sluice.ingest.reading.kafka:examine_offset_ranges",
    examine_to_ingest="sluice.ingest.reading.kafka:examine_unread_offset_ranges",
    read_blocks="sluice.ingest.reading.kafka:read_topic_blocks",
    find_unchanged="sluice.ingest.topics.offsets:find_kept_deliveries",
    find_warnings="sluice.ingest.topics.offsets:find_retention_warnings",
)
TABLE = DatasetKind(
    name="table",
    label="Table",
    order=1,
    sets_rows_aside=True,
    may_read=(FILE_SOURCE.name, TOPIC.name),
    reads_others=", which is a {read}; a @table reads sources and temporary views. Make the shared step a @temporary_view, or this one "
    "a @materialized_view.",
    run="sluice.runs.execution.flow_choice:choose_silver_flow",
    plan="sluice.runs.planning.steps:plan_silver_step",
    plan_replay="sluice.runs.planning.steps:plan_silver_replay",
    measure_lag="sluice.runs.status.lag:measure_silver_lag",
    measure_lag_anew="sluice.runs.status.lag:measure_silver_lag_anew",
    read_standing="sluice.runs.status.lag:read_silver_standing",
    quiet="sluice.runs.execution.quiet_marking:find_end_of_quiet_dataset",
    check="sluice.runs.planning.transforms:examine_table",
    preview="sluice.flows.column_lineage:preview_table_rows",
    test="sluice.testing.running:make_table_rows",
    recompute="sluice.verification.recomputation:recompute_table",
    replay_quarantined="sluice.flows.quarantine.readmission:refold_quarantined_rows",
)
WINDOWED_STREAM = DatasetKind(
    name="windowed stream",
    label="Stream",
    order=2,
    keeps_state=True,
    may_read=(FILE_SOURCE.name, TOPIC.name, TABLE.name),
    reads_others="; a @windowed reads sources and tables, whose rows are mostly only added.",
    run="sluice.runs.execution.flow_choice:choose_stream_flow",
    plan="sluice.runs.planning.steps:plan_stream_step",
    measure_lag="sluice.runs.status.lag:measure_stream_lag",
    measure_lag_anew="sluice.runs.status.lag:measure_lag_of_all_inputs",
    read_standing="sluice.runs.status.lag:measure_stream_lag",  # the checkpoint alone does not show whether the stream can go on
    quiet="sluice.runs.execution.quiet_marking:find_end_of_quiet_stream",
    check="sluice.runs.planning.transforms:examine_stream",
    preview="sluice.flows.column_lineage:preview_stream_rows",
)
MATERIALIZED_VIEW = DatasetKind(
    name="materialized view",
    label="View",
    order=3,
    may_ask_clock=True,
    reads_computed=True,
    run="sluice.runs.execution.flow_choice:choose_gold_flow",
    plan="sluice.runs.planning.steps:plan_view_step",
    measure_lag="sluice.runs.status.lag:measure_view_lag",
    measure_lag_anew="sluice.runs.status.lag:measure_lag_of_all_inputs",
    read_standing="sluice.runs.status.lag:read_view_standing",
    quiet="sluice.runs.execution.quiet_marking:find_end_of_quiet_dataset",
    check="sluice.runs.planning.transforms:examine_view",
    preview="sluice.flows.column_lineage:preview_view_rows",
    test="sluice.testing.running:make_view_rows",
    recompute="sluice.verification.recomputation:recompute_view",
)
COMPUTED_VIEW = DatasetKind(
    name="computed view",
    label="View",
    noun="@view",
    order=4,
    check="sluice.runs.planning.transforms:examine_computed_view",
    preview="sluice.flows.column_lineage:preview_computed_rows",
    test="sluice.testing.running:make_computed_view_rows",
)
TEMPORARY_VIEW = DatasetKind(
    name="temporary view", label="Temporary view", order=4, test="sluice.testing.running:make_temporary_view_rows"
)
CHANGE_TARGET = DatasetKind(name="change target", label="Table", order=4)
"""The kind of what `auto_cdc` declares. A pipeline holds the tables and the view it expands to instead, each of its own kind."""

KINDS = (FILE_SOURCE, TOPIC, TABLE, WINDOWED_STREAM, MATERIALIZED_VIEW, COMPUTED_VIEW, TEMPORARY_VIEW, CHANGE_TARGET)
