"""`@materialized_view` declares a table that always equals its transform over its inputs, and how much of it a change recomputes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, overload

from sluice.declare import kinds
from sluice.declare.datasets import made_rows
from sluice.declare.datasets.dataset import Dataset, Names, Personal, split_personal_treatments
from sluice.declare.datasets.decorator_options import (
    DatasetOptions,
    check_options,
    complete_options,
    decorate_function_or_text,
    separate_expectations,
)
from sluice.declare.field_values import check_field_types
from sluice.declare.kinds import FlowKind
from sluice.declare.pipeline import is_interval
from sluice.declare.quality.expectations import Action, Declared, ExpectationDecorator, ExpectingTransform, P
from sluice.declare.quoting import quote_identifier
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTHING = "0 days"


@dataclass(frozen=True)
class TimeReach:
    """A change of an input at day or instant d touches only the view's rows whose `column` lies from d - before to d + after.

    column: a DATE or TIMESTAMP column of the view. before, after: intervals such as "6 days". input: the SQL expression over the input
    that gives d, a DATE or TIMESTAMP; by default the column of the same name. If one of the two is a day and the other an instant, the
    whole day counts. A change whose d is NULL may touch any row.

    A reach narrows what is recomputed, in addition to what Spark's optimiser finds by itself. It is a promise that the engine believes:
    if it does not hold, outdated rows stay in the view, and `sluice verify` finds them.
    """

    column: str
    before: str = NOTHING
    after: str = NOTHING
    input: str = ""

    def __post_init__(self) -> None:
        check_field_types(self, f"TimeReach('{self.column}')", {"before": "'6 days'", "after": "'6 days'"})
        object.__setattr__(self, "input", self.input or quote_identifier(self.column))
        for side in ("before", "after"):
            if not is_interval(getattr(self, side)):
                raise DeclarationError(
                    f"TimeReach('{self.column}'): {side} is an interval such as '6 days', not '{getattr(self, side)}'."
                )


def check_time_reach(reach: Mapping[str, TimeReach], reads: tuple[str, ...], owner: str) -> dict[str, TimeReach]:
    """Check the reaches that a view declares, by input. Raises DeclarationError for an unknown input, or for two columns of the view."""
    for name in reach:
        if name not in reads:
            raise DeclarationError(f"{owner}: reach names '{name}', which it does not read: {', '.join(reads)}.")
    if len({one.column for one in reach.values()}) > 1:
        raise DeclarationError(f"{owner}: reach must use the same column of the view for all inputs.")
    return dict(reach)


Recompute = Literal["auto", "keys", "strict", "full"]


@dataclass(frozen=True)
class RecomputeRule:
    """How much of a view is recomputed after its inputs change.

    always_full: all of it. by_cost: all of it if that is cheaper, else only what the change touches. bounded_only: a change that can
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


@dataclass(frozen=True, kw_only=True)
class MaterializedView(Dataset[P]):
    """A table that always equals its transform over its inputs, kept so by recomputing the keys that a change affects.

    of_some: for a view that does not wait for missing inputs, a function from the inputs that exist (in the order of `reads`) to the
    transform over them, or to None if they are too few. reach: by input, how far in time a change reaches. recompute: "keys" or "full";
    "auto" takes whichever is cheaper; "strict" follows keys, and fails at a change that nothing bounds.

    at_least: how many people a row must be about to be stored. subjects: the column of the transform's result with their number, each
    person counted once.

    folded_by: for a target of changes, the columns by which its log is grouped: its rows with one value of these come from the log's rows
    with that value. It cannot have a key twice, so no check is needed. followed_by: the same columns if a change of the log touches only
    rows with its own values of these.
    """

    kind: ClassVar[FlowKind] = kinds.MATERIALIZED_VIEW
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
            hint = nearest_name_hint(str(self.recompute), RECOMPUTE_RULES)
            raise DeclarationError(f"{owner}: unknown recompute '{self.recompute}'.{hint}")

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


AnyView = MaterializedView[Any]


class ViewOptions(DatasetOptions, total=False):
    """What `materialized_view` takes beside its inputs, keys, name and text. See `MaterializedView`."""

    reach: Mapping[str, TimeReach] | None
    recompute: Recompute
    at_least: int | None
    subjects: str | None


@dataclass(frozen=True)
class _ViewDecorator:
    options: dict[str, Any]
    expectations: tuple[Declared, ...]

    @overload
    def __call__(self, function: ExpectingTransform[P]) -> MaterializedView[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> MaterializedView[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | ExpectingTransform[P]) -> MaterializedView[P]:
        plain, own = separate_expectations(function)
        options = complete_options(self.options, plain.__name__, (*own, *self.expectations), "View")
        if any(one.action.takes_row_out for one in options["expectations"]):
            refused = " or ".join(action.counted_as for action in Action if action.takes_row_out)
            fitting = " or ".join(action.decorator for action in Action if not action.takes_row_out)
            raise DeclarationError(f"View '{options['name']}': a view's rows cannot be {refused}; {fitting}.")
        return MaterializedView(function=plain, **options)


@overload
def materialized_view(
    *, reads: Names, keys: Names, name: str | None = None, **options: Unpack[ViewOptions]
) -> _ViewDecorator: ...
@overload
def materialized_view(
    *, name: str, reads: Names, keys: Names, sql: str, **options: Unpack[ViewOptions]
) -> MaterializedView[...]: ...
def materialized_view(
    *,
    sql: str | None = None,
    expectations: tuple[ExpectationDecorator, ...] = (),
    personal: Personal = (),
    reach: Mapping[str, TimeReach] | None = None,
    **options: Any,
) -> Any:
    """Declares the decorated transform as a view that always equals its full recompute. See `table`, `MaterializedView` and `Dataset`."""
    check_options(materialized_view, ViewOptions, options)
    found = {**options, **split_personal_treatments(personal), "reach": reach or {}}
    return decorate_function_or_text(_ViewDecorator, found, expectations, sql, "View")
