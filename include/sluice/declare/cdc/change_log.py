"""The change log of an `auto_cdc` target: which rows of a feed are changes, and what is kept of each.

A feed's row gets its sequence and its kind before its verdict (`ChangeMarker`). After the verdict and the treatment of personal columns
it gets the log's columns (`ChangeShaper`). Both steps are row-local, so the same flow keeps a log as any silver table.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.call_sites import call_sites_left_out
from sluice.declare.cdc.histories import CHANGE, CONTENT, DELETE, SEQUENCE, UPSERT
from sluice.declare.lazy_spark import F
from sluice.declare.quality.expectations import Action, Expectation
from sluice.declare.quoting import quote_column, quote_columns, quote_identifier
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from sluice.declare.datasets.tables import Table

KNOWN = "known_key_and_sequence"
"""The expectation that a change has its keys and its sequence."""

OWN = (SEQUENCE, CHANGE, CONTENT)
_CARRIED = ("_delivery", "_row", "_failed_rules", "_null_rules")
"""The columns a flow adds to those of a transform: the row's provenance and its verdict."""


@dataclass(frozen=True, kw_only=True)
class TargetColumns:
    """The columns of a target: all of its feed's that do not begin with an underscore, those listed, or all except those excluded.

    of_several: there are other feeds, which may have columns that this one lacks. Then what is listed is checked over all logs, where the
    target is folded, and what is left out by `find_unknown_left_out_columns`.
    """

    owner: str
    keys: tuple[str, ...]
    listed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    of_several: bool = False

    def select_columns(self, given: Sequence[str]) -> list[str]:
        """Selects the target's columns from those given. Raises DeclarationError for a column that is not among them."""
        if not self.of_several:
            check_columns_exist(self.owner, "column_list", self.listed, given)
            check_columns_exist(self.owner, "except_column_list", self.left_out, given)
        if self.listed:
            return [name for name in self.listed if name in given]
        return [name for name in given if name in self.keys or not (name.startswith("_") or name in self.left_out)]


@dataclass(frozen=True, kw_only=True)
class ChangeMarker:
    """Selects a feed's rows that are changes, or those that are truncates, and adds SEQUENCE and CHANGE.

    deletes, truncates: SQL conditions; NULL counts as false. sequence_by: several columns make a struct, which is compared field by
    field. A truncate without a known time counts as a change, and its verdict reports that.
    """

    owner: str
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    deletes: str | None = None
    truncates: str | None = None
    only_truncates: bool = False

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The rows of the frame that this marker selects."""
        with call_sites_left_out():
            return self._select_marked_rows(frame)

    def _select_marked_rows(self, frame: DataFrame) -> DataFrame:
        check_columns_exist(self.owner, "keys", self.keys, frame.columns)
        check_columns_exist(self.owner, "sequence_by", self.sequence_by, frame.columns)
        taken = [name for name in OWN if name in frame.columns]
        if taken:
            raise DeclarationError(
                f"{self.owner}: what it reads has a column '{taken[0]}', which its change log needs for itself."
            )
        rows, kind = frame, F.lit(UPSERT)
        if self.truncates:
            known = functools.reduce(lambda a, b: a & b, (quote_column(name).isNotNull() for name in self.sequence_by))
            truncate = self._is(frame, "apply_as_truncates", self.truncates) & known
            rows = frame.where(truncate if self.only_truncates else ~truncate)
        if self.deletes:
            kind = F.when(self._is(frame, "apply_as_deletes", self.deletes), DELETE).otherwise(UPSERT)
        return rows.select("*", self._sequence(), kind.alias(CHANGE))

    def _is(self, frame: DataFrame, field: str, condition: str) -> Column:
        said = F.expr(condition)
        kind = frame.select(said.alias(SEQUENCE)).schema[SEQUENCE].dataType.typeName()
        if kind not in ("boolean", "void"):
            raise DeclarationError(
                f"{self.owner}: {field} is a condition, as in \"change = 'delete'\"; this one is of type {kind.upper()}."
            )
        return F.coalesce(said.cast("boolean"), F.lit(False))

    def _sequence(self) -> Column:
        parts = quote_columns(self.sequence_by)
        return (F.struct(*parts) if len(parts) > 1 else parts[0]).alias(SEQUENCE)


@dataclass(frozen=True, kw_only=True)
class ChangeShaper:
    """Makes the log's row of a change: the target's columns, SEQUENCE, CHANGE and CONTENT. A delete keeps only its keys and its subject."""

    columns: TargetColumns
    subject: str | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Returns the rows of the log, with the columns that the flow adds."""
        names = self.columns.select_columns([name for name in frame.columns if name not in (*OWN, *_CARRIED)])
        check_columns_exist(self.columns.owner, "subject", (self.subject,) if self.subject else (), names)
        stays = {*self.columns.keys, self.subject}
        upsert = F.col(CHANGE) == UPSERT
        kept = {name: quote_column(name) if name in stays else F.when(upsert, quote_column(name)) for name in names}
        carried = [F.col(name) for name in _CARRIED if name in frame.columns]
        made = [column.alias(name) for name, column in kept.items()]
        return frame.select(*made, SEQUENCE, CHANGE, hash_row_content(kept, frame.schema).alias(CONTENT), *carried)


def is_change_log(table: Table[Any]) -> bool:
    """Whether a table is a log of changes, in which all rows of one key are equal."""
    return isinstance(table.shape, ChangeShaper)


def find_unknown_left_out_columns(logs: Sequence[Table[Any]], feeds: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns, as a sentence, what a target leaves out and none of its feeds has. No log holds such columns, and one feed need not have them.

    logs: of one target. feeds: by log, the columns of its feed; while one is not known nothing can be said.
    """
    if not all(log.name in feeds for log in logs):
        return []
    given = dict.fromkeys(name for log in logs for name in feeds[log.name])
    for log in logs:
        if isinstance(log.shape, ChangeShaper):
            try:
                check_columns_exist(log.shape.columns.owner, "except_column_list", log.shape.columns.left_out, given)
            except DeclarationError as error:
                return [str(error)]
    return []


def list_treated_keys(table: Table[Any]) -> list[str]:
    """Returns the keys of a log of changes that are stored treated. A treatment may leave nothing of a value, as of a blank text."""
    return (
        [name for name in table.shape.columns.keys if name in table.treatments] if isinstance(table.shape, ChangeShaper) else []
    )


def is_truncate_log(table: Table[Any]) -> bool:
    """Whether a table is a log of truncates, which holds nothing about anybody."""
    return table.shape is shape_truncates


def shape_truncates(frame: DataFrame) -> DataFrame:
    """Keeps only the SEQUENCE of a truncate."""
    return frame.select(SEQUENCE, *(name for name in _CARRIED if name in frame.columns))


def hash_row_content(columns: Mapping[str, Column], schema: StructType) -> Column:
    """The hash of a row's content, which decides ties. It covers the columns that are not NULL, sorted by name.

    A column that is added later therefore does not change the order of older rows. schema: has a field for each column. JSON has instants to
    the millisecond, so what is finer is added to it, and only where there is something: stored hashes of other rows stay as they are.
    """
    names = sorted(columns)
    text = F.to_json(F.struct(*(columns[name].alias(name) for name in names)), {"ignoreNullFields": "true"})
    finer = (_finer_instants_text(name, columns[name], schema[name].dataType) for name in names)
    return F.sha2(F.concat_ws("", text, *(one for one in finer if one is not None)), 256)


def _finer_instants_text(name: str, column: Column, kind: DataType) -> Column | None:
    """What a column's instants have below the millisecond, as text; NULL if nothing. None for types without instants."""
    if kind.typeName() in ("timestamp", "timestamp_ntz"):
        finer = F.unix_micros(column.cast("timestamp")) % 1000
        return F.when(finer != 0, F.concat(F.lit(f"{name}+"), finer.cast("string")))
    if "timestamp" not in kind.simpleString():
        return None
    whole, cut = (
        F.to_json(
            F.struct(column.alias(name)),
            {
                "timestampFormat": f"yyyy-MM-dd'T'HH:mm:ss.{fraction}XXX",
                "timestampNTZFormat": f"yyyy-MM-dd'T'HH:mm:ss.{fraction}",
            },
        )
        for fraction in ("SSSSSS", "SSS'000'")
    )
    return F.when(whole != cut, whole)


def change_log_expectations(declared: Iterable[Expectation], marked: ChangeMarker) -> tuple[Expectation, ...]:
    """The expectations of a log: the declared ones, which a delete need not meet, and that every change has its keys and sequence."""
    known = " AND ".join(f"{quote_identifier(name)} IS NOT NULL" for name in dict.fromkeys((*marked.keys, *marked.sequence_by)))
    found = tuple(declared)
    if marked.deletes:
        # NULL stays NULL, so that a change which is no delete is counted as such.
        found = tuple(replace(one, condition=f"{CHANGE} = '{DELETE}' OR ({one.condition})") for one in found)
    return (Expectation(name=KNOWN, condition=known, action=Action.QUARANTINE), *found)


def check_columns_exist(owner: str, field: str, wanted: Iterable[str], given: Iterable[str]) -> None:
    """Raises DeclarationError with the nearest name if a declaration names a column that does not exist."""
    present = list(given)
    for name in wanted:
        if name not in present:
            raise DeclarationError(
                f"{owner}: {field} names '{name}', which is not a column of its input.{nearest_name_hint(name, present)}"
            )
