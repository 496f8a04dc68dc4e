"""A declared table: a transform, and how its result is kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self

from sluice.declare.datasets import made_rows
from sluice.declare.declaration import Declaration
from sluice.declare.field_values import add_parent_columns, check_declared_name, check_field_types, check_names
from sluice.declare.kinds import FlowKind
from sluice.declare.lazy_spark import write_schema_text
from sluice.declare.privacy import treat
from sluice.declare.privacy.treat import Treatment
from sluice.declare.quality.expectations import Expectation, P
from sluice.declare.quality.table_expectations import TableExpectation
from sluice.declare.recorded_declarations import record_declaration
from sluice.declare.table_layout import Layout, find_order_mistakes
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Names = str | tuple[str, ...]
OnErasure = Literal["delete", "anonymise"]
Personal = Names | Mapping[str, Treatment | None]
"""Columns with personal data; as a mapping, with the treatment that each gets before it is stored."""


@dataclass(frozen=True, kw_only=True)
class Dataset(Declaration, Generic[P]):
    """A declared table. Like the function it was made from, it can be called with DataFrames in the order of `reads`.

    schema: DDL text or a StructType of exactly the columns that the transform gives, with NOT NULL, CHECK and COMMENT. treatments: by
    personal column, the treatment of its values before they are stored. restricted: the table lies below SLUICE_RESTRICTED, not in the
    lake. sql: the text that declares it, if there is one. subject_at: the time that a row is about, as SQL over the stored columns;
    required if the subject's identifiers change hands (`Link`). layout: how its files are kept, if not by the defaults. cluster_by: liquid
    clustering instead of `zorder_by` and `partition_by`; only Spark writes such a table.

    asked_by: the columns by which queries select its rows, for measuring what OPTIMIZE gained. They do not change the table.

    own_personal: the personal columns that the declaration names; `personal` also has the inherited ones. record_path: where a table that
    Sluice keeps for itself lies below the pipeline's records. serves: the declared table that such a table is kept for. made_by: the
    functions and texts that the fingerprint covers, if the function is not the user's own. declared_in: the module that declares it.
    """

    kind: ClassVar[FlowKind]
    name: str
    function: Callable[P, DataFrame]
    reads: tuple[str, ...]
    keys: tuple[str, ...]
    zorder_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    asked_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    layout: Layout | None = None
    subject: str | None = None
    subject_at: str | None = None
    personal: tuple[str, ...] = ()
    own_personal: tuple[str, ...] | None = field(default=None, compare=False)
    treatments: Mapping[str, Treatment] = field(default_factory=dict, hash=False)
    expectations: tuple[Expectation, ...] = ()
    table_expectations: tuple[TableExpectation, ...] = ()
    schema: str | None = None
    restricted: bool = False
    sql: str | None = None
    comment: str = ""
    declared_in: str = ""
    record_path: str | None = None
    serves: str | None = None
    made_by: tuple[Callable[..., Any] | str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """Returns what the transform makes of these inputs."""
        made = made_rows.call_transform(self.function, self.label, *args, **kwargs)
        return made_rows.null_empty_partition_texts(made, self.partition_by)

    def __post_init__(self) -> None:
        owner = f"Table '{self.name}'"
        check_declared_name(self.name, "Table")
        object.__setattr__(self, "schema", write_schema_text(self.schema))
        check_field_types(self, owner)
        for of in ("reads", "keys", "zorder_by", "cluster_by", "asked_by", "partition_by", "personal"):
            object.__setattr__(self, of, check_names(getattr(self, of), of, owner))
        object.__setattr__(self, "own_personal", self.personal if self.own_personal is None else self.own_personal)
        self.fill_from_function(self.function)
        if not self.reads or not self.keys:
            raise DeclarationError(f"{owner}: reads and keys may not be empty.")
        if self.sql is None and not self.made_by:
            parameters = len(inspect.signature(self.function).parameters)
            if parameters != len(self.reads):
                raise DeclarationError(f"{owner}: reads names {len(self.reads)} inputs, the function takes {parameters}.")
        # A view's subject may be treated: views follow their inputs, and no erasure looks for rows in them.
        for mistake in treat.find_treatment_mistakes(self.treatments, self.keys, self.subject if self.folded_source else None):
            raise DeclarationError(f"{owner}: {mistake}")
        for mistake in self.layout.find_mistakes(self.private, self.cluster_by) if self.layout else ():
            raise DeclarationError(f"{owner}: {mistake}")
        for mistake in find_order_mistakes(self.private, self.zorder_by, self.cluster_by, self.partition_by):
            raise DeclarationError(f"{owner}: {mistake}")
        record_declaration(self)

    @property
    def sequence_by(self) -> str | None:
        """The column that decides which row of a key wins."""
        return None

    @property
    def named_columns(self) -> dict[str, tuple[str, ...]]:
        """Its own columns that the declaration names, by what they are named for."""
        return {
            "keys": self.keys,
            "zorder_by": self.zorder_by,
            "cluster_by": self.cluster_by,
            "asked_by": self.asked_by,
            "partition_by": self.partition_by,
            "layout.statistics": self.layout.statistics_columns if self.layout else (),
            "sequence_by": (self.sequence_by,) if self.sequence_by else (),
            "subject": (self.subject,) if self.subject else (),
        }

    @property
    def streamed_reads(self) -> tuple[str, ...]:
        """The inputs whose changes its flow streams."""
        return self.reads

    @property
    def streamed_records(self) -> Mapping[str, str]:
        """The tables of the pipeline's own records that its flow streams: name in the checkpoint -> where the table is kept."""
        return {}

    @property
    def parted_by(self) -> tuple[str, ...]:
        """The columns whose values divide its rows into parts that can be handled separately."""
        return self.keys

    def list_fingerprint_fields(self) -> tuple[object, ...]:
        """Returns the fields of this kind alone that count in its fingerprint."""
        return ()

    def add_personal_columns(self, inherited: frozenset[str]) -> Self:
        """Returns it with these personal columns in addition to its own."""
        return replace(self, personal=tuple(sorted(set(self.personal) | inherited)))

    def over(self, present: Iterable[str]) -> Self | None:
        """Returns it reduced to those of its inputs that exist. None if it has to wait for one."""
        return self if set(self.reads) <= set(present) else None

    @property
    def private(self) -> frozenset[str]:
        """The columns that must stay out of statistics, partitions and clustering. A personal field makes its whole column private."""
        return add_parent_columns((*self.personal, *((self.subject,) if self.subject else ())))


AnyDataset = Dataset[Any]


def split_personal_treatments(personal: Personal) -> dict[str, Any]:
    """Splits the value of `personal=` into the fields `personal` and `treatments` of a dataset."""
    if not isinstance(personal, Mapping):
        return {"personal": personal, "treatments": {}}
    return {"personal": tuple(personal), "treatments": {name: how for name, how in personal.items() if how is not None}}
