"""`@table` declares a row-local transform, whose rows are kept as one a key: the fold of the deliveries of a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, overload

from sluice.declare import kinds
from sluice.declare.datasets.dataset import Dataset, Names, OnErasure, Personal, split_personal_treatments
from sluice.declare.datasets.decorator_options import (
    DatasetOptions,
    check_options,
    complete_options,
    decorate_function_or_text,
    separate_expectations,
)
from sluice.declare.kinds import FlowKind
from sluice.declare.quality.expectations import Declared, ExpectationDecorator, ExpectingTransform, P
from sluice.errors import DeclarationError
from sluice.own_records import OUTCOMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Table(Dataset[P]):
    """One row per key: the fold of the live deliveries of its source. The transform must be row-local.

    sequence_by: among rows of one key, the highest value of this column wins. Ties, and tables without a sequence, are decided by
    content, never by the order of arrival. key_in_one_file: all rows of a key come from one file, so folding a key again reads that
    file alone. apply_as_deletes: an SQL condition that marks the rows that delete their key; such a table is kept by a change log, as
    an `auto_cdc` is. shape: for a change log, the row-local function that gives a row its stored form after verdict and treatments.
    on_erasure: "anonymise" keeps the rows of an erased person, with NULL in their subject and personal columns.

    replayed_by: the columns by whose values a replay finds all the rows to process again; by default the keys. A change log uses the
    keys of its target: a replay takes all changes of such a key, since otherwise two versions of the code would make its state.
    """

    kind: ClassVar[FlowKind] = kinds.TABLE
    sequence_by: str | None = None
    key_in_one_file: bool = False
    apply_as_deletes: str | None = None
    shape: Callable[[DataFrame], DataFrame] | None = None
    replayed_by: tuple[str, ...] = ()
    on_erasure: OnErasure = "delete"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "replayed_by", self.replayed_by or self.keys)
        if self.sequence_by in self.treatments:
            raise DeclarationError(
                f"Table '{self.name}': personal treats '{self.sequence_by}', which is its sequence_by: the order would be lost. "
                "Let the transform return a copy of it under another name."
            )

    @property
    def folded_source(self) -> str:
        """The source it reads."""
        return self.reads[0]

    @property
    def parted_by(self) -> tuple[str, ...]:
        """For a change log the keys of its target, because the log's own keys include a hash of each row."""
        return self.replayed_by

    @property
    def streamed_reads(self) -> tuple[str, ...]:
        """Empty: bronze is read directly, for the deliveries that have an outcome."""
        return ()

    @property
    def streamed_records(self) -> Mapping[str, str]:
        """The outcomes of deliveries."""
        return {OUTCOMES.name: OUTCOMES.name}


AnyTable = Table[Any]


class TableOptions(DatasetOptions, total=False):
    """What `table` takes beside its inputs, keys, name and text. See `Table`."""

    sequence_by: str | None
    apply_as_deletes: str | None
    key_in_one_file: bool
    on_erasure: OnErasure


@dataclass(frozen=True)
class _TableDecorator:
    options: dict[str, Any]
    expectations: tuple[Declared, ...]

    @overload
    def __call__(self, function: ExpectingTransform[P]) -> Table[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> Table[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | ExpectingTransform[P]) -> Table[P]:
        plain, own = separate_expectations(function)
        return Table(function=plain, **complete_options(self.options, plain.__name__, (*own, *self.expectations), "Table"))


@overload
def table(*, reads: Names, keys: Names, name: str | None = None, **options: Unpack[TableOptions]) -> _TableDecorator: ...
@overload
def table(*, name: str, reads: Names, keys: Names, sql: str, **options: Unpack[TableOptions]) -> Table[...]: ...
def table(
    *, sql: str | None = None, expectations: tuple[ExpectationDecorator, ...] = (), personal: Personal = (), **options: Any
) -> Any:
    """Declares the decorated row-local transform as a keyed table of the source it reads. See `Table` and `Dataset`.

    name: the table's name if it differs from the function's, as for tables declared in a loop. sql: a query over the name in `reads`,
    instead of a function; `table` then returns the table itself. expectations: for an SQL text, what decorators below the function
    would add.
    """
    check_options(table, TableOptions, options)
    found = {**options, **split_personal_treatments(personal)}
    return decorate_function_or_text(_TableDecorator, found, expectations, sql, "Table")
