"""Recomputes tables from bronze, through all layers, lazily in Spark's memory, and writes nothing to the lake.

A silver table's rows are made as a batch over all of bronze makes them, by code separate from the flows that keep the table. It shares with the
flows the declared transform and expectations, the treatments of personal columns, the suppression list, and the ledger's record of which
deliveries count. Which rows stay and which row of a key wins is implemented again here, in the simplest way.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, TimestampNTZType, TimestampType

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.cdc import change_log
from sluice.declare.cdc.expanded_tables import ChangeLogFold
from sluice.declare.datasets import made_rows
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import AnyTable, Table
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.declare.quality.expectations import Expectation
from sluice.declare.quoting import quote_column, quote_columns
from sluice.ingest import delivery_tables
from sluice.lake import table_creation, table_frames
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import anonymised, suppression, suppression_list, treatments
from sluice.verification.change_targets import recompute_cdc_target
from sluice.verification.comparison import TablePart, align_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_FEW = 100
_RANK, _HASH = "_sluice_rank", "_sluice_hash"
_SECOND = "yyyy-MM-dd'T'HH:mm:ss"


def recompute_silver_rows(workspace: Workspace, table: AnyTable, only: Column | None = None) -> DataFrame | None:
    """Returns one row per key, without provenance. None if bronze has no record yet.

    only: a condition on rows of bronze; returns the rows made from these, whether or not they win their keys.
    """
    records = _read_counting_records(workspace, workspace.graph.sources[table.reads[0]])
    if records is None:
        return None
    records = anonymised.bronze_rows_for_table(table, records)
    made = _replace_negative_zero(table(records if only is None else records.where(only)))
    made = made.drop(*(name for name in PROVENANCE if name in made.columns))
    rows = treatments.apply_treatments(
        workspace.settings,
        _drop_erased_rows(workspace, _filter_by_expectations(made, table.expectations), table),
        table.treatments,
        f"Table '{table.name}'",
    )
    for name in change_log.list_treated_keys(table):
        rows = rows.where(quote_column(name).isNotNull())
    shaped = table.shape(rows) if table.shape else rows
    return shaped if only is not None else _pick_latest_per_key(table, shaped)


def _read_counting_records(workspace: Workspace, source: Source) -> DataFrame | None:
    """The records of the deliveries that count now, without those of erased people."""
    path = workspace.path(source.name)
    if not delta_log.is_delta_table(path):
        return None
    bronze = table_frames.read_table(workspace.session, path)
    if not delivered_columns(bronze.columns):
        return None
    numbers = sorted(find_counting_deliveries(workspace, source))
    if len(numbers) > _FEW:  # a condition with so many would be slow to plan
        listed = table_creation.make_inline_frame(workspace.session, [(number,) for number in numbers], "_delivery BIGINT")
        counted = bronze.join(F.broadcast(listed), "_delivery", "left_semi").select(*bronze.columns)
    else:
        counted = bronze.where(F.col("_delivery").isin(numbers))
    return _drop_erased_rows(workspace, counted, source)


def find_counting_deliveries(workspace: Workspace, source: Source) -> set[int]:
    """The deliveries whose records count now, from all sources that go into this one's bronze table."""
    found: set[int] = set()
    for one in workspace.graph.feeding(source.name):
        found |= delivery_tables.select_live_deliveries(
            delivery_tables.read_source_outcomes(workspace.outcomes, one.name), one.replaces_files
        )
    return found


def _drop_erased_rows(workspace: Workspace, rows: DataFrame, declared: Source | AnyTable) -> DataFrame:
    domain, subject = workspace.graph.domain(declared), subjects.build_subject_expression(workspace.graph, declared, rows.columns)
    if subject is None or domain is None or suppression_list.is_suppression_list_empty(workspace):
        return rows
    at = suppression.row_instant_column(rows, subjects.subject_time_expression(declared))
    return suppression.exclude_suppressed_rows(workspace, rows, F.expr(subject), domain, at).select(*rows.columns)


def _filter_by_expectations(rows: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The rows without those that an expectation drops or sets aside. A NULL condition is not met, unless null_ok."""
    refusing = [one for one in expectations if one.action.takes_row_out]
    met = [F.coalesce(F.expr(one.condition).cast("boolean"), F.lit(one.null_ok)) for one in refusing]
    return rows.where(functools.reduce(lambda a, b: a & b, met)) if met else rows


def _pick_latest_per_key(table: AnyTable, rows: DataFrame) -> DataFrame:
    """Picks the row of each key with the highest sequence, then the highest hash of its content."""
    text = F.to_json(F.struct(*quote_columns(sorted(rows.columns))), {"ignoreNullFields": "true"})
    order = [quote_column(table.sequence_by).desc_nulls_last()] if table.sequence_by else []
    of_key = Window.partitionBy(*quote_columns(table.keys)).orderBy(*order, F.col(_HASH).desc_nulls_last())
    text = F.concat_ws("", text, *_list_finer_instants(rows.schema))
    ranked = rows.withColumn(_HASH, F.sha2(text, 256)).withColumn(_RANK, F.row_number().over(of_key))
    return ranked.where(F.col(_RANK) == 1).drop(_RANK, _HASH)


def _list_finer_instants(schema: StructType) -> list[Column]:
    """What instants have below the millisecond, which JSON leaves out, by column and only where there is something."""
    written = []
    for each in sorted(schema, key=lambda each: each.name):
        column, name = quote_column(each.name), each.name
        if isinstance(each.dataType, TimestampType | TimestampNTZType):
            micros = F.unix_micros(column.cast(TimestampType()))
            written.append(F.when(micros % 1000 != 0, F.format_string(f"{name.replace('%', '%%')}+%d", micros % 1000)))
        elif "timestamp" in each.dataType.simpleString():
            forms = [
                {"timestampFormat": f"{_SECOND}.{part}XXX", "timestampNTZFormat": f"{_SECOND}.{part}"}
                for part in ("SSSSSS", "SSS'000'")
            ]
            fine, coarse = (F.to_json(F.struct(column.alias(name)), form) for form in forms)
            written.append(F.when(fine != coarse, fine))
    return written


def _replace_negative_zero(rows: DataFrame) -> DataFrame:
    """Replaces -0.0 by 0.0, the same number with another text."""
    floating = {field.name: field.dataType for field in rows.schema if isinstance(field.dataType, DoubleType | FloatType)}
    return rows.withColumns({name: quote_column(name) + F.lit(0).cast(kind) for name, kind in floating.items()})


@dataclass
class Recomputation:
    """The rows that tables should have. as_stored: for a table whose readers follow its stored rows, the reason (they are no function of bronze).

    Shared inputs of several tables are made once, and stay in Spark's cache until `release`. part: the part of the rows that is compared; a
    recomputation may return others too.
    """

    workspace: Workspace
    as_stored: Callable[[str], str | None]
    shared: frozenset[str] = frozenset()
    part: TablePart | None = None
    made: dict[str, DataFrame | None] = field(default_factory=dict)

    def expected(self, name: str) -> DataFrame | None:
        """The rows that a table should have. None if there is nothing yet to make them from."""
        if name not in self.made:
            found = self._recompute_declared(self.workspace.graph.datasets[name])
            self.made[name] = found.persist() if found is not None and name in self.shared else found
        return self.made[name]

    def followed(self, name: str) -> list[str]:
        """The reasons why a view is compared over stored inputs, one text for each such input, direct or indirect."""
        if name not in self.workspace.graph.views:
            return []
        found: dict[str, None] = {}
        for read in self.workspace.graph.views[name].reads:
            why = self.as_stored(read)
            found |= dict.fromkeys([f"over '{read}' as it is stored, which is {why}"] if why else self.followed(read))
        return list(found)

    def release(self) -> None:
        """Frees what was cached."""
        for name in self.shared:
            frame = self.made.get(name)
            if frame is not None:
                frame.unpersist()

    def _recompute_declared(self, declared: Dataset[Any]) -> DataFrame | None:
        recompute = declared.kind.recompute_rows
        return recompute(self, declared) if recompute is not None else None

    def read_input(self, name: str) -> DataFrame:
        """An input of a view: a table as it should be, with the columns that the stored one has."""
        stored = table_frames.read_table(self.workspace.session, self.workspace.path(name)).drop(*PROVENANCE)
        if name in self.workspace.graph.sources:  # bronze, from which everything is made
            return stored
        made = None if self.as_stored(name) else self.expected(name)
        if made is not None:
            return align_columns(made, stored.schema)
        return stored if self.as_stored(name) else stored.limit(0)


def recompute_table(again: Recomputation, table: Table[Any]) -> DataFrame | None:
    """The rows that a silver table should have."""
    return recompute_silver_rows(again.workspace, table)


def recompute_view(again: Recomputation, view: MaterializedView[Any]) -> DataFrame | None:
    """The rows that a view should have, over those of its inputs that exist."""
    there = view.over(name for name in view.reads if delta_log.is_delta_table(again.workspace.path(name)))
    if there is None:
        return None
    inputs = {name: again.read_input(name) for name in there.reads}
    if isinstance(there.function, ChangeLogFold):
        rows = made_rows.null_empty_partition_texts(
            _recompute_folded_view(there.function, inputs, again.part), there.partition_by
        )
    else:
        rows = there(*inputs.values())
    return treatments.apply_treatments(again.workspace.settings, rows, there.treatments, f"View '{there.name}'")


def _recompute_folded_view(folded: ChangeLogFold, inputs: Mapping[str, DataFrame], part: TablePart | None) -> DataFrame:
    changes = {name: frame for name, frame in inputs.items() if name not in folded.truncates}
    return recompute_cdc_target(folded.declared, changes, [inputs[name] for name in inputs if name in folded.truncates], part)


def find_shared_inputs(workspace: Workspace, wanted: Iterable[str], as_stored: Callable[[str], str | None]) -> frozenset[str]:
    """The tables that are needed more than once to make the wanted ones."""
    uses: Counter[str] = Counter()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        uses[name] += 1
        if uses[name] == 1 and name in workspace.graph.views:
            waiting += [read for read in workspace.graph.views[name].reads if as_stored(read) is None]
    return frozenset(name for name, count in uses.items() if count > 1)
