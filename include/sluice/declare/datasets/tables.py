"""Tables and materialised views: a transform, and how its result is kept. Their decorators are in `decorators`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self

from sluice.declare import kinds
from sluice.declare.datasets import made_rows
from sluice.declare.datasets.layout import Layout
from sluice.declare.datasets.time_reach import TimeReach, check_time_reach
from sluice.declare.kinds import DatasetKind, Declaration
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
    """How much of a view a change of its inputs makes anew: always_full: all of it; by_cost: all, where that is cheaper; else what it touches.

    bounded_only: a change that can touch any row is refused, instead of making all of the view anew.
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
"""Columns with personal data; with a treatment, what becomes of each before it is stored."""


@dataclass(frozen=True, kw_only=True)
class Dataset(Declaration, Generic[P]):
    """A declared table. It can be called with DataFrames, in the order of `reads`, like the function it was made from.

    schema: DDL of exactly the columns that the transform gives, with NOT NULL, CHECK and COMMENT. treatments: by personal column, what it
    becomes before it is stored. restricted: the table lies below SLUICE_RESTRICTED, not in the lake. sql: the text, where it was declared
    by one. subject_at: the time that a row is about, as SQL over the stored columns; needed where the subject's identifiers change hands
    (`Link`). layout: how its files are kept, where that is not as for every table.

    asked_by: the columns by whose values it is asked; what OPTIMIZE bought is measured by them. They change nothing of the table.

    own_personal: the personal columns that the declaration names; `personal` also has those inherited by name. place: where a table that
    Sluice keeps for itself lies below the pipeline's bookkeeping. serves: the declared table that such a table is kept for. made_by: the
    functions and texts that the fingerprint covers, where the function is not the user's own. declared_in: the module that declares it.
    """

    kind: ClassVar[DatasetKind]
    name: str
    function: Callable[P, DataFrame]
    reads: tuple[str, ...]
    keys: tuple[str, ...]
    zorder_by: tuple[str, ...] = ()
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
        """What the transform makes of these inputs."""
        return made_rows.null_empty_partition_texts(self.function(*args, **kwargs), self.partition_by)

    def __post_init__(self) -> None:
        owner = f"Table '{self.name}'"
        check_declared_name(self.name, "Table")
        for of in ("reads", "keys", "zorder_by", "asked_by", "partition_by", "personal"):
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
        hidden = {name.lower() for name in self.private}  # to Spark, upper and lower case are one
        for mistake in self.layout.find_mistakes(self.private) if self.layout else ():
            raise DeclarationError(f"{owner}: {mistake}")
        for of in ("zorder_by", "partition_by"):
            used = sorted(name for name in getattr(self, of) if name.lower() in hidden)
            if used:
                raise DeclarationError(
                    f"{owner}: {of} names the personal column '{used[0]}'; such a column must not lay out files."
                )

    @property
    def sequence_by(self) -> str | None:
        """The column that decides among rows of one key."""
        return None

    @property
    def streamed_reads(self) -> tuple[str, ...]:
        """Those of its inputs whose changes its flow streams."""
        return self.reads

    @property
    def streamed_records(self) -> Mapping[str, str]:
        """Tables of the pipeline's own records that its flow streams: by the name that its checkpoint has for each, where it is kept."""
        return {}

    @property
    def parted_by(self) -> tuple[str, ...]:
        """The columns by whose values a part of its rows can be told from the others."""
        return self.keys

    def list_fingerprint_fields(self) -> tuple[object, ...]:
        """What of the fields that only its kind has counts in its fingerprint."""
        return ()

    def add_personal_columns(self, inherited: frozenset[str]) -> Self:
        """With its own."""
        return replace(self, personal=tuple(sorted(set(self.personal) | inherited)))

    def over(self, present: Iterable[str]) -> Self | None:
        """It over those of its inputs that are there. None where it waits for another."""
        return self if set(self.reads) <= set(present) else None

    @property
    def private(self) -> frozenset[str]:
        """Columns that must not get into statistics, partitions or clustering. A personal field makes its whole column private."""
        return add_parent_columns((*self.personal, *((self.subject,) if self.subject else ())))


@dataclass(frozen=True, kw_only=True)
class Table(Dataset[P]):
    """One row per key: the fold of the live deliveries of its source. The transform is row-local.

    sequence_by: the column whose highest value wins among rows of one key. Ties, and tables without one, are decided by content, never by
    which delivery came last. key_in_one_file: the rows of a key come from one file only, so folding a key again reads that file alone.
    apply_as_deletes: SQL that says which rows delete their key; such a table is kept by a change log, as `auto_cdc` keeps its own. shape:
    of a change log, what is made of a row after its verdict and its treatments; row-local. on_erasure: "anonymise" keeps the rows of an
    erased person with NULL for their subject and their personal columns.

    replayed_by: the columns by whose values a replay finds all rows to take again; by default the keys. For a change log these are the keys
    of its target: a replay takes all changes of such a key, since otherwise its state would be made by two versions of the code.
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
                "Let the transform give a second column of it."
            )

    @property
    def folded_source(self) -> str:
        """What it reads."""
        return self.reads[0]

    @property
    def parted_by(self) -> tuple[str, ...]:
        """Of a change log the keys of its target: its own keys hold a hash of each row."""
        return self.replayed_by

    @property
    def streamed_reads(self) -> tuple[str, ...]:
        """None: bronze is read as it is, of the deliveries that have an outcome."""
        return ()

    @property
    def streamed_records(self) -> Mapping[str, str]:
        """The outcomes of deliveries."""
        return {"outcomes": "outcomes"}


@dataclass(frozen=True, kw_only=True)
class MaterializedView(Dataset[P]):
    """A table that always equals its transform over its inputs as they are, kept so by affected keys.

    of_some: for a view that does not wait for inputs that are not there yet, the transform over the inputs that are, in the order of
    `reads`; None where they are too few. reach: by input, how far in time a change reaches. recompute: "keys" or "full"; with "auto" the
    engine takes whichever is cheaper; with "strict" it follows keys, and a change that nothing bounds fails.

    at_least: how many people a row must be about to be stored. subjects: the column of the transform's result that counts them, each once.

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
        """What the transform makes of these inputs, without groups that are too small: nobody who runs the view gets those."""
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
        """What it is folded by, or its keys."""
        return self.folded_by or self.keys

    @property
    def recompute_rule(self) -> RecomputeRule:
        """What its `recompute` means."""
        return RECOMPUTE_RULES[self.recompute]

    def list_fingerprint_fields(self) -> tuple[object, ...]:
        """How far changes reach, and how small groups may be. How cheaply a view is kept does not count."""
        groups = ((self.at_least, self.subjects),) if self.at_least else ()
        return (*((sorted((name, repr(one)) for name, one in self.reach.items()),) if self.reach else ()), *groups)

    def over(self, present: Iterable[str]) -> Self | None:
        """The view over those of its inputs that are there; None where it waits for one that is not."""
        known = set(present)
        there = tuple(name for name in self.reads if name in known)
        if there == self.reads:
            return self
        function = self.of_some(there) if self.of_some else None
        reach = {name: one for name, one in self.reach.items() if name in there}
        return replace(self, reads=there, function=function, reach=reach) if function else None


@dataclass(frozen=True, kw_only=True)
class TemporaryView(Declaration):
    """A row-local transform of a source, or of another temporary view, that is never stored: what reads it runs it.

    It has no expectations: they belong to the tables that read it.
    """

    kind: ClassVar[DatasetKind] = kinds.TEMPORARY_VIEW
    name: str
    function: Callable[[DataFrame], DataFrame]
    reads: tuple[str, ...]
    comment: str = ""
    declared_in: str = ""
    sql: str | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """What the transform makes of its input."""
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
    """Splits what `personal=` was given into the fields `personal` and `treatments` of a dataset."""
    if not isinstance(personal, Mapping):
        return {"personal": personal, "treatments": {}}
    return {"personal": tuple(personal), "treatments": {name: how for name, how in personal.items() if how is not None}}
