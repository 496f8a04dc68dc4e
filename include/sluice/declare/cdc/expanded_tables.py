"""The tables an `auto_cdc` expands to: a change log per feed, a log of truncates, and the view over them that is the target."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.call_sites import call_sites_left_out
from sluice.declare.cdc import histories
from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.cdc.change_log import (
    OWN,
    ChangeMarker,
    ChangeShaper,
    TargetColumns,
    change_log_expectations,
    check_columns_exist,
    shape_truncates,
)
from sluice.declare.cdc.histories import CHANGE, CONTENT, SEQUENCE
from sluice.declare.datasets.computed import TemporaryView
from sluice.declare.datasets.dataset import AnyDataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.errors import DeclarationError
from sluice.own_records import CHANGES, SNAPSHOTS, TRUNCATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_LOG = ("keys", "sequence_by", "apply_as_deletes", "apply_as_truncates", "column_list", "except_column_list", "from_snapshots")
"""The options that decide which rows are in a log; together with those below, which are in the target."""
_OF_TARGET = (
    "reads",
    *_OF_LOG,
    "ignore_null_updates",
    "stored_as_scd_type",
    "track_history_column_list",
    "track_history_except_column_list",
)


@dataclass(frozen=True, kw_only=True)
class ChangeLogFold:
    """The target as a function of its logs, in the order of `reads`. truncates: the names of the logs that hold truncates."""

    declared: AutoCdc
    reads: tuple[str, ...]
    truncates: frozenset[str]

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Returns the target made from the logs."""
        with call_sites_left_out():
            return self._fold_logs(*frames)

    def _fold_logs(self, *frames: DataFrame) -> DataFrame:
        cdc, given = self.declared, dict(zip(self.reads, frames, strict=True))
        logs = {name: frame for name, frame in given.items() if name not in self.truncates}
        changes = _union_change_logs(cdc, logs)
        truncates = [given[name] for name in self.reads if name in self.truncates]
        if len(logs) == len(cdc.reads):  # otherwise a column of another feed may not have come yet
            there = [name for name in changes.columns if name not in OWN]
            for option in ("column_list", "track_history_column_list", "track_history_except_column_list"):
                check_columns_exist(cdc.owner, option, getattr(cdc, option), there)
        left = {*cdc.except_column_list, SEQUENCE, CHANGE, CONTENT}
        wanted = cdc.column_list or changes.columns
        columns = [name for name in wanted if name in changes.columns and name not in left]
        if cdc.from_snapshots:
            tracked = _tracked_columns(cdc, columns)
            return histories.fold_snapshots(changes, cdc.keys, columns, SEQUENCE, tracked, cdc.stored_as_scd_type)
        ends = functools.reduce(lambda a, b: a.unionByName(b), truncates) if truncates else None
        if cdc.stored_as_scd_type == 1:
            return histories.fold_changes_scd1(changes, ends, cdc.keys, columns, cdc.ignore_null_updates)
        return histories.fold_changes_scd2(
            changes, ends, cdc.keys, columns, _tracked_columns(cdc, columns), cdc.ignore_null_updates
        )

    def of_some(self, present: tuple[str, ...]) -> Callable[..., DataFrame] | None:
        """The same function over the logs that exist, in this order. None if none of them holds changes."""
        return replace(self, reads=present) if set(present) - self.truncates else None


def expand_auto_cdc(cdc: AutoCdc, private: Mapping[str, frozenset[str]]) -> list[AnyDataset]:
    """Returns the datasets that keep the target. private: by feed, the personal columns of its source."""
    logs = [
        _build_change_log(cdc, feed, _compose_log_name(cdc, feed, SNAPSHOTS.name if cdc.from_snapshots else CHANGES.name))
        for feed in cdc.reads
    ]
    ends = [
        _build_truncate_log(cdc, feed, _compose_log_name(cdc, feed, TRUNCATES.name))
        for feed in cdc.reads
        if cdc.apply_as_truncates
    ]
    view = _build_target_view(
        cdc, ChangeLogFold(declared=cdc, reads=_log_names([*logs, *ends]), truncates=frozenset(_log_names(ends)))
    )
    hidden = frozenset().union(*private.values(), cdc.personal, (cdc.subject,) if cdc.subject else ())
    if {name.lower() for name in hidden} & {name.lower() for name in cdc.sequence_by}:
        # A column made from a personal column is personal too.
        logs = [replace(log, personal=(*log.personal, SEQUENCE)) for log in logs]
        ends = [replace(log, personal=(SEQUENCE,)) for log in ends]
        view = replace(view, personal=(*view.personal, *cdc.of_intervals))
    return [*logs, *ends, view]


def _build_target_view(cdc: AutoCdc, folded: ChangeLogFold) -> MaterializedView[Any]:
    return MaterializedView(
        name=cdc.name,
        function=folded,
        reads=folded.reads,
        keys=(*cdc.keys, *cdc.of_intervals[:1]),
        zorder_by=cdc.zorder_by,
        cluster_by=cdc.cluster_by,
        asked_by=cdc.asked_by,
        partition_by=cdc.partition_by,
        layout=cdc.layout,
        subject=cdc.subject,
        subject_at=cdc.subject_at,
        personal=cdc.personal,
        table_expectations=cdc.table_expectations,
        schema=cdc.schema,
        restricted=cdc.restricted,
        comment=cdc.comment or f"Kept from the changes of {', '.join(cdc.reads)}.",
        declared_in=cdc.declared_in,
        made_by=(_fingerprint_text(cdc, _OF_TARGET), *_rules_beside_options(cdc)),
        of_some=folded.of_some,
        folded_by=cdc.keys,
        followed_by=() if cdc.from_snapshots else cdc.keys,  # an extract touches every key of the one before
    )


def _log_names(logs: Iterable[AnyDataset]) -> tuple[str, ...]:
    return tuple(log.name for log in logs)


def expand_table_with_deletes(table: Table[Any]) -> tuple[TemporaryView, AutoCdc]:
    """Expands a table with `apply_as_deletes` into a temporary view of its transform and a target of its changes."""
    if table.sequence_by is None:
        raise DeclarationError(
            f"Table '{table.name}': apply_as_deletes needs sequence_by: which came first, a row or its deletion?"
        )
    if table.key_in_one_file:
        raise DeclarationError(f"Table '{table.name}': key_in_one_file and apply_as_deletes exclude each other.")
    rows = TemporaryView(
        name=f"{table.name}__rows", function=table.function, reads=table.reads, declared_in=table.declared_in, sql=table.sql
    )
    shared = (
        "name",
        "keys",
        "apply_as_deletes",
        "subject",
        "subject_at",
        "personal",
        "treatments",
        "zorder_by",
        "cluster_by",
        "asked_by",
        "partition_by",
        "layout",
        "schema",
    )
    given = {
        of: getattr(table, of) for of in (*shared, "restricted", "expectations", "table_expectations", "comment", "declared_in")
    }
    return rows, AutoCdc(reads=(rows.name,), sequence_by=(table.sequence_by,), **given)


def _build_change_log(cdc: AutoCdc, feed: str, name: str) -> Table[Any]:
    marked = _build_change_marker(cdc)
    columns = TargetColumns(
        owner=cdc.owner, keys=cdc.keys, listed=cdc.column_list, left_out=cdc.except_column_list, of_several=len(cdc.reads) > 1
    )
    return Table(
        **_shared_log_options(cdc, feed, name, f"The change log of {cdc.name}: one row a change."),
        function=marked,
        keys=(*cdc.keys, SEQUENCE, CHANGE, CONTENT),
        replayed_by=cdc.keys,
        subject=cdc.subject,
        subject_at=cdc.subject_at,
        personal=(*cdc.personal, CONTENT),
        treatments=cdc.treatments,
        expectations=change_log_expectations(cdc.expectations, marked),
        shape=ChangeShaper(columns=columns, subject=cdc.subject),
    )


def _build_truncate_log(cdc: AutoCdc, feed: str, name: str) -> Table[Any]:
    return Table(
        **_shared_log_options(cdc, feed, name, f"When all rows of {cdc.name} were gone."),
        function=replace(_build_change_marker(cdc), only_truncates=True),
        keys=(SEQUENCE,),
        shape=shape_truncates,
    )


def _shared_log_options(cdc: AutoCdc, feed: str, name: str, comment: str) -> dict[str, Any]:
    kind, _, of = name.removeprefix(f"{cdc.name}_").partition("_")
    return {
        "name": name,
        "reads": (feed,),
        "restricted": cdc.restricted,
        "comment": comment,
        "declared_in": cdc.declared_in,
        "record_path": f"{kind}/{cdc.name}" + (f"__{of}" if of else ""),
        "serves": cdc.name,
        "made_by": (_fingerprint_text(cdc, _OF_LOG),),
    }


def _build_change_marker(cdc: AutoCdc) -> ChangeMarker:
    return ChangeMarker(
        owner=cdc.owner,
        keys=cdc.keys,
        sequence_by=cdc.sequence_by,
        deletes=cdc.apply_as_deletes,
        truncates=cdc.apply_as_truncates,
    )


def _compose_log_name(cdc: AutoCdc, feed: str, kind: str) -> str:
    return f"{cdc.name}_{kind}" + (f"_{feed}" if len(cdc.reads) > 1 else "")


def _union_change_logs(cdc: AutoCdc, logs: Mapping[str, DataFrame]) -> DataFrame:
    """The changes of all feeds; a column that a feed lacks is NULL in its changes. Raises DeclarationError if types differ."""
    types: dict[str, tuple[str, Any]] = {}
    for log, frame in logs.items():
        for field in frame.schema:
            of, kind = types.setdefault(field.name, (log, field.dataType))
            if kind.simpleString() != field.dataType.simpleString():  # whether NULL is allowed within it is no other type
                raise DeclarationError(
                    f"{cdc.owner}: column '{field.name}' is {kind.simpleString()} in '{of}' and {field.dataType.simpleString()} in '{log}'; "
                    "give it one type in all feeds."
                )
    return functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), logs.values())


def _tracked_columns(cdc: AutoCdc, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns in which a new value begins an interval."""
    if cdc.track_history_column_list:
        return tuple(name for name in cdc.track_history_column_list if name in columns)
    left = (*cdc.keys, *cdc.sequence_by, *cdc.track_history_except_column_list)
    return tuple(name for name in columns if name not in left)


def _rules_beside_options(cdc: AutoCdc) -> tuple[str, ...]:
    """Rules that once were others: a target that they concern is computed again."""
    rules = {
        "the sequence is never tracked by default": bool(cdc.track_history_except_column_list),
        "NULL in a field of a struct keeps its value": cdc.ignore_null_updates,
    }
    return tuple(rule for rule, concerns_target in rules.items() if concerns_target)


def _fingerprint_text(cdc: AutoCdc, fields: Iterable[str]) -> str:
    return repr([getattr(cdc, name) for name in fields])
