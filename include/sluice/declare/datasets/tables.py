"""Tables and materialised views: a transform, and how its result is kept. `decorators` has their decorators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self

from sluice.declare import kinds
from sluice.declare.datasets import made_rows
from sluice.declare.datasets.time_reach import TimeReach, check_time_reach
from sluice.declare.kinds import DatasetKind, Declaration
from sluice.declare.layout import Layout, find_order_mistakes
from sluice.declare.names import add_parent_columns, check_declared_name, check_names
from sluice.declare.privacy import treat
from sluice.declare.privacy.treat import Treatment
from sluice.declare.quality.expectations import Expectation, P
from sluice.declare.quality.whole_table import TableExpectation
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Names = str | tuple[str, ...]
Recompute = Literal["auto", "keys", "strict", "full"]


@dataclass(frozen=True)
class RecomputeRule:
    """How much of a view is recomputed after its inputs change.

    always_full: all of it. by_cost: all of it where that is cheaper, else only what the change touches. bounded_only: a change that can
    touch any row is refused instead of recomputing the whole view.
    """

    always_full: bool = False
    by_cost: bool = False
    bounded_only: bool = False


RECOMPUTE_RULES: Mapping[Recompute, RecomputeRule] = MappingProxyType({
    "auto": RecomputeRule(by_cost=True),
    "keys": RecomputeRule(),
    "strict": RecomputeRule(bounded_only=True),
    "full": RecomputeRule(always_full=True),
})
"""What each value of `recompute` means. The engine asks the rule, never the value."""
OnErasure = Literal["delete", "anonymise"]
Personal = Names | Mapping[str, Treatment | None]
"""Columns with personal data; as a mapping, with the treatment that each gets before it is stored."""


@dataclass(frozen=True, kw_only=True)
class Dataset(Declaration, Generic[P]):
    """A declared table. Like the function it was made from, it can be called with DataFrames in the order of `reads`.

    schema: DDL of exactly the columns that the transform gives, with NOT NULL, CHECK and COMMENT. treatments: by personal column, what it
    becomes before it is stored. restricted: the table lies below SLUICE_RESTRICTED, not in the lake. sql: the text, where it was declared
    by one. subject_at: the time that a row is about, as SQL over the stored columns; needed where the subject's identifiers change hands
    (`Link`). layout: how its files are kept, where that is not as for every table. cluster_by: liquid clustering in place of `zorder_by` and
    `partition_by`; Spark alone writes such a table.

    asked_by: the columns by whose values it is asked; what OPTIMIZE bought is measured by them. They change nothing of the table.

    own_personal: the personal columns that the declaration names; `personal` also has the inherited ones. place: where a table that
    Sluice keeps for itself lies below the pipeline's records. serves: the declared table that such a table is kept for. made_by: the
    functions and texts that the fingerprint covers, if the function is not the user's own. declared_in: the module that declares it.
    """

    kind: ClassVar[DatasetKind]
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
    place: str | None = None
    serves: str | None = None
    made_by: tuple[Callable[..., Any] | str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """Returns what the transform makes of these inputs."""
        return made_rows.null_empty_partition_texts(self.function(*args, **kwargs), self.partition_by)

    def __post_init__(self) -> None:
        owner = f"Table '{self.name}'"
        check_declared_name(self.name, "Table")
        for of in ("reads", "keys", "zorder_by", "cluster_by", "asked_by", "partition_by", "personal"):
            object.__setattr__(self, of, check_names(getattr(self, of), of, owner))
        object.__setattr__(self, "own_personal", self.personal if self.own_personal is None else self.own_personal)
        object.__setattr__(self, "comment", self.comment or inspect.getdoc(self.function) or "")
        object.__setattr__(self, "declared_in", self.declared_in or self.function.__module__)
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

    kind: ClassVar[DatasetKind] = kinds.TABLE
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
        return {"outcomes": "outcomes"}


@dataclass(frozen=True, kw_only=True)
class MaterializedView(Dataset[P]):
    """A table that always equals its transform over its inputs, kept so by recomputing the keys that a change affects.

    of_some: for a view that does not wait for missing inputs, a function from the inputs that exist (in the order of `reads`) to the
    transform over them, or to None if they are too few. reach: by input, how far in time a change reaches. recompute: "keys" or "full";
    "auto" takes whichever is cheaper; "strict" follows keys, and fails at a change that nothing bounds.

    at_least: how many people a row must be about to be stored. subjects: the column of the transform's result with their number, each
    person counted once.

    folded_by: of a target of changes, the columns that its log is grouped by: its rows of one value of these are made of the log's rows of
    that value. It cannot have a key twice, so nobody needs to look. followed_by: the same columns where a change of the log touches only
    rows of its own values of these.
    """

    kind: ClassVar[DatasetKind] = kinds.MATERIALIZED_VIEW
    of_some: Callable[[tuple[str, ...]], Callable[..., DataFrame] | None] | None = None
    reach: Mapping[str, TimeReach] = field(default_factory=dict, hash=False)
    recompute: Recompute = "auto"
    at_least: int | None = None
    subjects: str | None = None
    folded_by: tuple[str, ...] = ()
    followed_by: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """Returns what the transform makes of these inputs, without groups that are too small: no caller ever gets those."""
        return made_rows.leave_out_small_groups(
            super().__call__(*args, **kwargs), self.at_least, self.subjects, f"View '{self.name}'"
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = f"View '{self.name}'"
        for mistake in made_rows.find_small_group_mistakes(self.at_least, self.subjects, self.private):
            raise DeclarationError(f"{owner}: {mistake}")
        object.__setattr__(self, "reach", check_time_reach(self.reach, self.reads, owner))
        if self.recompute not in RECOMPUTE_RULES:
            raise DeclarationError(f"{owner}: recompute is one of {', '.join(RECOMPUTE_RULES)}, not '{self.recompute}'.")

    @property
    def parted_by(self) -> tuple[str, ...]:
        """Its `folded_by`, or its keys."""
        return self.folded_by or self.keys

    @property
    def recompute_rule(self) -> RecomputeRule:
        """The rule that its `recompute` stands for."""
        return RECOMPUTE_RULES[self.recompute]

    def list_fingerprint_fields(self) -> tuple[object, ...]:
        """The reach of changes and the limit for small groups. How the view is recomputed does not count."""
        groups = ((self.at_least, self.subjects),) if self.at_least else ()
        return (*((sorted((name, repr(one)) for name, one in self.reach.items()),) if self.reach else ()), *groups)

    def over(self, present: Iterable[str]) -> Self | None:
        """Returns the view over those of its inputs that exist. None if it has to wait for one."""
        known = set(present)
        there = tuple(name for name in self.reads if name in known)
        if there == self.reads:
            return self
        function = self.of_some(there) if self.of_some else None
        reach = {name: one for name, one in self.reach.items() if name in there}
        return replace(self, reads=there, function=function, reach=reach) if function else None


@dataclass(frozen=True, kw_only=True)
class TemporaryView(Declaration):
    """A row-local transform of a source or of another temporary view. It is never stored; whatever reads it runs it.

    It has no expectations: those belong to the tables that read it.
    """

    kind: ClassVar[DatasetKind] = kinds.TEMPORARY_VIEW
    name: str
    function: Callable[[DataFrame], DataFrame]
    reads: tuple[str, ...]
    comment: str = ""
    declared_in: str = ""
    sql: str | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Returns what the transform makes of its input."""
        return self.function(frame)

    def __post_init__(self) -> None:
        owner = f"Temporary view '{self.name}'"
        check_declared_name(self.name, "Temporary view")
        object.__setattr__(self, "reads", check_names(self.reads, "reads", owner))
        object.__setattr__(self, "comment", self.comment or inspect.getdoc(self.function) or "")
        object.__setattr__(self, "declared_in", self.declared_in or self.function.__module__)
        if len(self.reads) != 1:
            raise DeclarationError(f"{owner} reads {len(self.reads)} inputs; it reads one source, or another temporary view.")


def split_personal_treatments(personal: Personal) -> dict[str, Any]:
    """Splits the value of `personal=` into the fields `personal` and `treatments` of a dataset."""
    if not isinstance(personal, Mapping):
        return {"personal": personal, "treatments": {}}
    return {"personal": tuple(personal), "treatments": {name: how for name, how in personal.items() if how is not None}}
