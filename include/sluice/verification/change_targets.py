"""The target of an `auto_cdc`, as a batch makes it from the accepted changes, key by key and change by change in plain Python.

`sluice.declare.cdc.histories` does the same by aggregates and windows, where no row waits for another. This code is kept simple.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.cdc.histories import CHANGE, CONTENT, DELETE, END, SEQUENCE, START
from sluice.declare.datasets import made_rows
from sluice.declare.quoting import quote_columns
from sluice.verification.comparison import TablePart, are_keys_divisible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = 10_000
"""How many rows of the target return to Spark at a time."""


def recompute_cdc_target(
    cdc: AutoCdc, changes: Mapping[str, DataFrame], ends: Iterable[DataFrame], part: TablePart | None = None
) -> DataFrame:
    """The target's rows. changes: the accepted changes, by log. ends: the truncates. part: the wanted rows, if the keys identify them."""
    accepted = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), changes.values())
    columns = _list_target_columns(cdc, accepted.columns)
    values = tuple(name for name in columns if name not in cdc.keys)
    plain = ChangeFold(
        values=values,
        tracked=_find_tracked_columns(cdc, values) if cdc.stored_as_scd_type == 2 else None,
        ends=tuple(dict.fromkeys(one for frame in ends for one in _collect_sequences(frame))),
        snapshots=tuple(_collect_sequences(accepted)) if cdc.from_snapshots else (),
        ignore_null_updates=cdc.ignore_null_updates,
    )
    schema = _build_target_schema(cdc, accepted.schema, columns)
    keys = quote_columns(cdc.keys)
    needed = [*quote_columns(columns), *(F.col(name) for name in (SEQUENCE, CHANGE, CONTENT))]
    if part is not None and are_keys_divisible(accepted.schema, cdc.keys):
        # Spark pushes no condition below a Python function. The part refers to keys as the target has them.
        accepted = made_rows.null_empty_partition_texts(accepted, cdc.partition_by).where(part.condition(cdc.keys))
    by_key = accepted.select(*needed).repartition(*keys).sortWithinPartitions(*keys)
    return by_key.mapInArrow(_build_fold_task(plain, cdc.keys, to_arrow_schema(schema, timezone="UTC")), schema)


def _build_fold_task(
    plain: ChangeFold, keys: tuple[str, ...], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns what a Spark task does with its share of the changes, which arrive key by key."""

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        made = _fold_target_rows(plain, keys, rows, [field.name for field in schema])
        while some := list(itertools.islice(made, _ROWS)):
            yield from pa.Table.from_pylist(some, schema=schema).to_batches()

    return fold


def _fold_target_rows(
    plain: ChangeFold, keys: tuple[str, ...], rows: Iterable[dict[str, Any]], columns: list[str]
) -> Iterator[dict[str, Any]]:
    for key, changes in itertools.groupby(rows, key=lambda row: tuple(row[name] for name in keys)):
        own = list(changes)
        for state in plain.fold(own):
            row = {**dict(zip(keys, key, strict=True)), **state}
            for bound in (START, END):
                if isinstance(row.get(bound), tuple):  # several columns: back to a struct, with the names that every change has.
                    row[bound] = dict(zip(own[0][SEQUENCE], row[bound], strict=True))
            yield {name: row[name] for name in columns}


def _collect_sequences(frame: DataFrame) -> list[Any]:
    """The sequences in the frame, each once, in Python's order."""
    batch = frame.select(SEQUENCE).distinct().toArrow()
    return sorted({_sortable_sequence(row[SEQUENCE]) for row in batch.to_pylist()})


def _list_target_columns(cdc: AutoCdc, given: list[str]) -> list[str]:
    """The target's columns; keys that it does not name come first."""
    wanted = [name for name in (cdc.column_list or given) if name in given]
    left = {*cdc.except_column_list, SEQUENCE, CHANGE, CONTENT}
    columns = [name for name in wanted if name not in left]
    return [*(key for key in cdc.keys if key not in columns), *columns]


def _find_tracked_columns(cdc: AutoCdc, values: Iterable[str]) -> tuple[str, ...]:
    """The columns in which a new value begins an interval."""
    if cdc.track_history_column_list:
        return tuple(name for name in values if name in cdc.track_history_column_list)
    left = (*cdc.track_history_except_column_list, *cdc.sequence_by)
    return tuple(name for name in values if name not in left)


def _build_target_schema(cdc: AutoCdc, given: StructType, columns: Iterable[str]) -> StructType:
    fields = [StructField(name, given[name].dataType) for name in columns]
    bounds = (START, END) if cdc.stored_as_scd_type == 2 else ()
    return StructType([*fields, *(StructField(name, given[SEQUENCE].dataType) for name in bounds)])


Row = Mapping[str, Any]
State = dict[str, Any]
"""The target's columns without the keys."""
Event = tuple[Any, int, str, State | None]
"""Its sequence, its position among events of one sequence, its content, and the state it sets; None deletes the key."""
_ENDS, _SAYS, _GONE = 0, 1, 2
"""At one sequence a truncate comes first, then the key's upserts, then its delete."""


@dataclass(frozen=True)
class ChangeFold:
    """How to fold changes. ends: sequences of truncates. tracked: columns in which a new value begins an interval; None for SCD 1.

    snapshots: for full extracts, when they were taken; a key that is missing in one is deleted there.
    """

    values: tuple[str, ...]
    tracked: tuple[str, ...] | None = None
    ends: tuple[Any, ...] = ()
    snapshots: tuple[Any, ...] = ()
    ignore_null_updates: bool = False

    def fold(self, changes: Sequence[Row]) -> Iterator[State]:
        """Folds the changes of one key into the target's rows: the columns without the keys, and for a history START and END."""
        states = self._states(self._events(changes))
        if self.tracked is not None:
            yield from self._intervals(states, self.tracked)
        elif states and states[-1][1] is not None:
            yield states[-1][1]

    def _events(self, changes: Sequence[Row]) -> list[Event]:
        events: list[Event] = [(end, _ENDS, "", None) for end in self.ends]
        for row in changes:
            gone = row[CHANGE] == DELETE
            says = None if gone else {name: row[name] for name in self.values}
            events.append((_sortable_sequence(row[SEQUENCE]), _GONE if gone else _SAYS, row[CONTENT], says))
        there = {_sortable_sequence(row[SEQUENCE]) for row in changes}
        events += [(taken, _GONE, "", None) for taken in self.snapshots if taken not in there]
        return sorted(events, key=lambda event: event[:3])

    def _states(self, events: Iterable[Event]) -> list[tuple[Any, State | None]]:
        """The state of the key after each sequence at which something happened."""
        found: list[tuple[Any, State | None]] = []
        state: State | None = None
        for sequence, together in itertools.groupby(events, key=lambda event: event[0]):
            for *_, says in together:
                if says is not None and self.ignore_null_updates:
                    before = state or {}
                    says = {name: _keep_known(value, before.get(name)) for name, value in says.items()}
                state = says
            found.append((sequence, state))
        return found

    def _intervals(self, states: Iterable[tuple[Any, State | None]], tracked: Sequence[str]) -> Iterator[State]:
        since, now = None, None
        for sequence, state in states:
            goes_on = now is not None and state is not None and all(_is_same_value(now[name], state[name]) for name in tracked)
            if not goes_on:
                if now is not None:
                    yield {**now, START: since, END: sequence}
                since = sequence
            now = state
        if now is not None:
            yield {**now, START: since, END: None}


def _keep_known(said: Any, before: Any) -> Any:
    """What a change leaves of a value if NULL says nothing. In a struct, which is NULL without a value, each field is such a value."""
    fields = next((one for one in (said, before) if isinstance(one, Mapping)), None)
    if fields is None:
        return before if said is None else said
    kept = {name: _keep_known((said or {}).get(name), (before or {}).get(name)) for name in fields}
    return kept if any(value is not None for value in kept.values()) else None


def _is_same_value(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # in Spark, NaN equals itself


def _sortable_sequence(sequence: Any) -> Any:
    """A sequence in a form that Python can order: several columns become a tuple."""
    return tuple(sequence.values()) if isinstance(sequence, Mapping) else sequence
