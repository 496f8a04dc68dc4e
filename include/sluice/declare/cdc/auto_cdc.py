"""`auto_cdc` and `auto_cdc_from_snapshot`: a target kept from change feeds or full extracts, whatever order they arrive in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sluice.declare import kinds
from sluice.declare.datasets.dataset import Names, Personal, split_personal_treatments
from sluice.declare.declaration import Declaration
from sluice.declare.field_values import check_declared_name, check_field_types, check_names
from sluice.declare.kinds import DatasetKind
from sluice.declare.lazy_spark import write_schema_text
from sluice.declare.privacy import treat
from sluice.declare.privacy.treat import Treatment
from sluice.declare.quality.expectations import (
    Expectation,
    ExpectationDecorator,
    flatten_expectations,
    select_row_expectations,
    select_table_expectations,
)
from sluice.declare.quality.table_expectations import TableExpectation
from sluice.declare.recorded_declarations import find_calling_module, record_declaration
from sluice.declare.table_layout import Layout
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ScdType = Literal[1, 2]
_OF_COLUMNS = (
    "keys",
    "sequence_by",
    "column_list",
    "except_column_list",
    "track_history_column_list",
    "track_history_except_column_list",
    "zorder_by",
    "cluster_by",
    "asked_by",
    "partition_by",
    "personal",
)


@dataclass(frozen=True, kw_only=True)
class AutoCdc(Declaration):
    """A target that is the fold of its change log: the last state of each key (SCD type 1), or all states with their times (type 2).

    reads: a source or a temporary view; several are feeds whose changes go into one target. keys: the columns that identify what a
    change is about. sequence_by: the columns that order the changes of a key, whenever they arrived; several are compared one after the
    other. apply_as_deletes, apply_as_truncates: SQL conditions over a row of the feed that mean that its key, or everything, is
    deleted. ignore_null_updates: NULL in a change keeps the value that was there. column_list, except_column_list: the target's
    columns; by default those of the feed that do not begin with an underscore. track_history_...: the columns whose change begins a new
    interval of SCD type 2; by default all but the keys and sequence_by. from_snapshots: the feed consists of full extracts, and a key
    that is missing in one is deleted; sequence_by then names the column that says which extract a row belongs to.

    expectations apply to the rows of the feeds; a delete need not meet them. The other fields are those of `Dataset`, for the target.
    """

    kind: ClassVar[DatasetKind] = kinds.CHANGE_TARGET
    name: str
    reads: tuple[str, ...]
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    apply_as_deletes: str | None = None
    apply_as_truncates: str | None = None
    ignore_null_updates: bool = False
    column_list: tuple[str, ...] = ()
    except_column_list: tuple[str, ...] = ()
    stored_as_scd_type: ScdType = 1
    track_history_column_list: tuple[str, ...] = ()
    track_history_except_column_list: tuple[str, ...] = ()
    from_snapshots: bool = False
    subject: str | None = None
    subject_at: str | None = None
    personal: tuple[str, ...] = ()
    treatments: Mapping[str, Treatment] = field(default_factory=dict, hash=False)
    zorder_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    asked_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    layout: Layout | None = None
    schema: str | None = None
    restricted: bool = False
    expectations: tuple[Expectation, ...] = ()
    table_expectations: tuple[TableExpectation, ...] = ()
    comment: str = ""
    declared_in: str = ""

    def __post_init__(self) -> None:
        check_declared_name(self.name, "Table")
        object.__setattr__(self, "schema", write_schema_text(self.schema))
        check_field_types(self, self.owner)
        for of in ("reads", *_OF_COLUMNS):
            object.__setattr__(self, of, check_names(getattr(self, of), of, self.owner))
        for mistake in (*self._required(), *self._columns(), *self._history()):
            raise DeclarationError(f"{self.owner}: {mistake}")
        record_declaration(self)

    @property
    def owner(self) -> str:
        """The name that messages use for it."""
        return f"Table '{self.name}'"

    def _required(self) -> list[str]:
        ordered = "snapshot_by" if self.from_snapshots else "sequence_by"
        found = [f"{of} may not be empty." for of, value in (("reads", self.reads), ("keys", self.keys)) if not value]
        if not self.sequence_by:
            found.append(f"{ordered} may not be empty: without it the order of arrival would decide.")
        for of in ("apply_as_deletes", "apply_as_truncates"):
            condition = getattr(self, of)
            if condition is not None and (not isinstance(condition, str) or not condition.strip()):
                found.append(f"{of} is an SQL condition over a row, as in \"change = 'delete'\".")
        return found

    def _columns(self) -> list[str]:
        found = []
        if self.column_list and self.except_column_list:
            found.append("column_list and except_column_list exclude each other.")
        needed = {"keys": self.keys, "subject": (self.subject,) if self.subject else ()}
        for of, columns in (
            *needed.items(),
            ("partition_by", self.partition_by),
            ("zorder_by", self.zorder_by),
            ("cluster_by", self.cluster_by),
            ("asked_by", self.asked_by),
            ("layout.statistics", self.layout.statistics_columns if self.layout else ()),
        ):
            for name in columns:
                if name in self.except_column_list:
                    found.append(f"{of} names '{name}', which except_column_list leaves out.")
                if self.column_list and name not in (*self.column_list, *self.of_intervals):
                    found.append(f"{of} names '{name}', which is not in column_list.{nearest_name_hint(name, self.column_list)}")
        treated_sequence = [name for name in self.sequence_by if name in self.treatments]
        if treated_sequence:
            found.append(
                f"sequence_by names '{treated_sequence[0]}', which is treated: the order of changes needs the untreated values."
            )
        return [*found, *treat.find_treatment_mistakes(self.treatments, self.keys, self.subject)]

    def _history(self) -> list[str]:
        if self.stored_as_scd_type not in (1, 2):
            return [f"stored_as_scd_type is 1 or 2, not {self.stored_as_scd_type!r}."]
        listed, left_out = self.track_history_column_list, self.track_history_except_column_list
        if not listed and not left_out:
            return []
        if self.stored_as_scd_type == 1:
            return ["track_history_... is for histories only: it needs stored_as_scd_type=2."]
        found = [] if not (listed and left_out) else ["one of track_history_column_list and ..._except_column_list is enough."]
        for name in (*listed, *left_out):
            if name in self.keys:
                found.append(f"track_history_... names the key '{name}', which never changes.")
            if (self.column_list and name not in self.column_list) or name in self.except_column_list:
                found.append(
                    f"track_history_... names '{name}', which is no column of the table.{nearest_name_hint(name, self.column_list)}"
                )
        return found

    @property
    def of_intervals(self) -> tuple[str, ...]:
        """The columns that a history has in addition to the feed's."""
        return ("__START_AT", "__END_AT") if self.stored_as_scd_type == 2 else ()


def auto_cdc(
    name: str,
    *,
    reads: Names,
    keys: Names,
    sequence_by: Names,
    apply_as_deletes: str | None = None,
    apply_as_truncates: str | None = None,
    ignore_null_updates: bool = False,
    column_list: Names = (),
    except_column_list: Names = (),
    stored_as_scd_type: ScdType = 1,
    track_history_column_list: Names = (),
    track_history_except_column_list: Names = (),
    subject: str | None = None,
    subject_at: str | None = None,
    personal: Personal = (),
    zorder_by: Names = (),
    cluster_by: Names = (),
    asked_by: Names = (),
    partition_by: Names = (),
    layout: Layout | None = None,
    schema: str | StructType | None = None,
    restricted: bool = False,
    expectations: tuple[ExpectationDecorator, ...] = (),
    comment: str = "",
) -> AutoCdc:
    """Declares a target that is kept from the changes of one feed or more. See `AutoCdc`."""
    return _build_auto_cdc({**locals(), "declared_in": find_calling_module()})


def auto_cdc_from_snapshot(
    name: str,
    *,
    reads: str,
    keys: Names,
    snapshot_by: str,
    column_list: Names = (),
    except_column_list: Names = (),
    stored_as_scd_type: ScdType = 1,
    track_history_column_list: Names = (),
    track_history_except_column_list: Names = (),
    subject: str | None = None,
    subject_at: str | None = None,
    personal: Personal = (),
    zorder_by: Names = (),
    cluster_by: Names = (),
    asked_by: Names = (),
    partition_by: Names = (),
    layout: Layout | None = None,
    schema: str | StructType | None = None,
    restricted: bool = False,
    expectations: tuple[ExpectationDecorator, ...] = (),
    comment: str = "",
) -> AutoCdc:
    """Declares a target that is kept from full extracts taken from time to time. See `AutoCdc`.

    snapshot_by: the column that says which extract a row belongs to; its values order the extracts. An extract without any row goes
    unnoticed.
    """
    given = {**locals(), "sequence_by": snapshot_by, "from_snapshots": True, "declared_in": find_calling_module()}
    del given["snapshot_by"]
    return _build_auto_cdc(given)


def _build_auto_cdc(given: dict[str, Any]) -> AutoCdc:
    found = flatten_expectations(given.pop("expectations"))
    rows = select_row_expectations(found, f"Table '{given['name']}'")
    return AutoCdc(
        **{**given, **split_personal_treatments(given["personal"])},
        expectations=rows,
        table_expectations=select_table_expectations(found),
    )
