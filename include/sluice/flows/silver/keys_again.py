"""Folds keys again from bronze: all that today's code makes of a key takes the place of what the table has of it.

The flow does so with keys that lost a row, since a maximum cannot be taken back, and a replay with keys of rows that may be made in
another way now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluice.declare.datasets.tables import AnyTable
from sluice.declare.ingest.source import Source
from sluice.flows.silver.delivery_scope import live_deliveries
from sluice.flows.silver.fold_operations import plan_replacing, select_winning_rows
from sluice.flows.silver.judged_rows import make_judged_rows, select_accepted_rows, select_rows_of_keys
from sluice.flows.writing import targets
from sluice.flows.writing.difference import persist_frame
from sluice.flows.writing.ranges import compute_value_ranges, limits_condition
from sluice.lake.nested_types import arrange_nested_fields
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def make_rows_of_keys_again(
    workspace: Workspace, table: AnyTable, source: Source, keys: DataFrame, deliveries: Sequence[int]
) -> Iterator[DataFrame]:
    """Yields all rows that today's code makes of these keys (`replayed_by`), with verdicts, kept in memory.

    deliveries: those by which the keys were found. If a key is in one file, only their files can have a row of it.
    """
    live = live_deliveries(workspace, source, deliveries if table.key_in_one_file else None)
    made = make_judged_rows(workspace, table, source, live)
    wanted = arrange_nested_fields(
        keys, made.schema
    )  # they come from the table, which has nested fields in the order in which they came
    with persist_frame(select_rows_of_keys(table, made, wanted, table.replayed_by)) as rows:
        yield rows


def plan_keys_again(
    workspace: Workspace,
    table: AnyTable,
    source: Source,
    keys: DataFrame,
    rows: DataFrame,
    target: DataFrame,
    moving: bool = False,
) -> DataFrame:
    """Returns the operations that put those of the keys' rows that are accepted in the place of what the target has of these keys.

    rows: what `make_rows_of_keys_again` yields. moving: as in `plan_replacing`.
    """
    accepted = select_accepted_rows(table, rows)
    good = arrange_nested_fields(accepted, target.schema)
    near = compute_value_ranges(keys, targets.choose_bounding_columns(table, target.schema, table.replayed_by))
    old = select_rows_of_keys(table, target.where(limits_condition(near)), keys, table.replayed_by)
    return plan_replacing(workspace, table, source, select_winning_rows(table, good, accepted.schema), old, moving)
