"""A pipeline's declarations by kind, and their expansion: a reader of an unstored view reads that view's inputs and runs both.

The row conditions of a `schema=` become expectations: bad rows go to quarantine, and the table's own constraints are the last guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sluice.declare.cdc import expanded_tables
from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import TemporaryView, View
from sluice.declare.datasets.dataset import AnyDataset, Dataset
from sluice.declare.datasets.materialized_views import MaterializedView, TimeReach
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source
from sluice.declare.quality.expectations import Action, Expectation
from sluice.declare.sql.schema import SchemaText, not_null_rule_name, split_schema_declaration
from sluice.declare.sql.texts import strip_sql_layout
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Declared = Source | Dataset[Any] | TemporaryView | AutoCdc | View[Any]
Kind = TypeVar("Kind", bound=Declared)


class DeclarationsByKind:
    """Declarations by kind, each kind in the order given. Two of one name are both kept.

    views: those of @materialized_view; computed: those of @view; unstored: temporary views. queries: all that are made from others and
    may be read by others, stored or not.
    """

    def __init__(self, declared: Iterable[Declared]) -> None:
        self._declared = tuple(declared)
        self.sources = self._select_kind(Source)
        self.datasets: tuple[Dataset[Any], ...] = self._select_kind(Dataset)
        self.tables: tuple[Table[Any], ...] = self._select_kind(Table)
        self.views: tuple[MaterializedView[Any], ...] = self._select_kind(MaterializedView)
        self.streams: tuple[Windowed[Any], ...] = self._select_kind(Windowed)
        self.computed: tuple[View[Any], ...] = self._select_kind(View)
        self.unstored = self._select_kind(TemporaryView)
        self.queries = tuple(item for item in self._declared if isinstance(item, Dataset | View))

    def __iter__(self) -> Iterator[Declared]:
        return iter(self._declared)

    def _select_kind(self, kind: type[Kind]) -> tuple[Kind, ...]:
        return tuple(item for item in self._declared if isinstance(item, kind))


def expand_declarations(declared: Iterable[Declared]) -> list[Source | AnyDataset]:
    """The declarations that are stored: without unstored views, but with the logs of each `auto_cdc` and the rules of schemas.

    Raises DeclarationError if unstored views read each other in a circle.
    """
    everything = [part for item in declared for part in _expand_declared_deletes(item)]
    by_kind = DeclarationsByKind(everything)
    views = {item.name: item for item in by_kind.unstored}
    computed = {item.name: item for item in by_kind.computed}
    sources = {item.name: item for item in by_kind.sources}
    found: list[Source | AnyDataset] = []
    for item in everything:
        if isinstance(item, AutoCdc):
            found += [
                _inline_temporary_views(part, views)
                for part in expanded_tables.expand_auto_cdc(
                    add_feed_schema_rules(item), _feed_personal_columns(item, views, sources)
                )
            ]
        elif not isinstance(item, TemporaryView | View):
            found.append(
                _inline_computed_views(item, computed)
                if isinstance(item, MaterializedView)
                else _inline_temporary_views(item, views)
            )
    return [item if isinstance(item, Source) else add_schema_rules(item) for item in found]


def _expand_declared_deletes(item: Declared) -> tuple[Declared, ...]:
    return expanded_tables.expand_table_with_deletes(item) if isinstance(item, Table) and item.apply_as_deletes else (item,)


def _feed_personal_columns(
    cdc: AutoCdc, views: Mapping[str, TemporaryView], sources: Mapping[str, Source]
) -> dict[str, frozenset[str]]:
    """The personal columns of the sources that an `auto_cdc` ultimately reads. Another check reports what is no source."""
    read = (resolve_temporary_views(views, feed)[0] for feed in cdc.reads)
    return {name: sources[name].private for name in read if name in sources}


def resolve_temporary_views(views: Mapping[str, TemporaryView], name: str) -> tuple[str, tuple[TemporaryView, ...]]:
    """What a reader of `name` ultimately reads, and the temporary views on the way, the nearest to the source first."""
    passed: list[TemporaryView] = []
    while name in views:
        if views[name] in passed:
            raise DeclarationError(f"Temporary views read each other in a circle: {' > '.join(view.name for view in passed)}.")
        passed.append(views[name])
        name = views[name].reads[0]
    return name, tuple(reversed(passed))


def compose_transforms(first: Iterable[TemporaryView], last: Callable[..., DataFrame]) -> Callable[[DataFrame], DataFrame]:
    """The transform that runs temporary views, then another transform."""
    steps = tuple(first)

    def run(frame: DataFrame) -> DataFrame:
        for step in steps:
            frame = step(frame)
        return last(frame)

    return run


def _inline_temporary_views(item: Source | AnyDataset, views: Mapping[str, TemporaryView]) -> Source | AnyDataset:
    if not isinstance(item, Table) or len(item.reads) != 1 or item.reads[0] not in views:
        return item
    source, passed = resolve_temporary_views(views, item.reads[0])
    made_by = (
        *(strip_sql_layout(view.sql) if view.sql else view.function for view in passed),
        *(item.made_by or (item.function,)),
    )
    # The names in an SQL text stay as written: its function takes the frame by position.
    return replace(item, reads=(source,), function=compose_transforms(passed, item.function), made_by=made_by, sql=item.sql)


def resolve_computed_views(computed: Mapping[str, View[Any]], reads: Iterable[str]) -> tuple[View[Any], ...]:
    """The views that are computed when `reads` are read, each after those it reads. Raises DeclarationError for a circle."""
    found: dict[str, View[Any]] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise DeclarationError(f"Views read each other in a circle: {' > '.join((*above[above.index(name) :], name))}.")
        if name in computed and name not in found:
            for below in computed[name].reads:
                add(below, (*above, name))
            found[name] = computed[name]

    for name in reads:
        add(name, ())
    return tuple(found.values())


def _inline_computed_views(item: MaterializedView[Any], computed: Mapping[str, View[Any]]) -> MaterializedView[Any]:
    """The view over the inputs of the computed views that it reads, so that it follows changes of those."""
    passed = resolve_computed_views(computed, item.reads)
    if not passed:
        return item
    read = [*(name for view in passed for name in view.reads), *item.reads]
    stored = tuple(dict.fromkeys(name for name in read if name not in computed))

    def run(*frames: DataFrame) -> DataFrame:
        known = dict(zip(stored, frames, strict=True))
        for view in passed:
            known[view.name] = view(*(known[name] for name in view.reads))
        return item.function(*(known[name] for name in item.reads))

    made_by = (*passed, repr(item.reads), *(item.made_by or (item.function,)))
    personal = tuple(sorted({*item.personal, *(name for view in passed for name in view.personal)}))
    reach = _resolve_time_reach(item, computed, stored)
    return replace(item, reads=stored, function=run, made_by=made_by, personal=personal, reach=reach)


def _resolve_time_reach(
    item: MaterializedView[Any], computed: Mapping[str, View[Any]], stored: tuple[str, ...]
) -> dict[str, TimeReach]:
    """The reach declared for a computed view, as the reach of the one table that view is made from."""
    found = {}
    for name, reach in item.reach.items():
        made_of = {read for view in resolve_computed_views(computed, (name,)) for read in view.reads if read not in computed} or {
            name
        }
        if len(made_of) > 1:
            raise DeclarationError(
                f"View '{item.name}': reach names '{name}', a @view of several tables ({', '.join(sorted(made_of))}). Each of "
                "them needs a reach of its own: read these tables instead of the @view."
            )
        found[made_of.pop()] = reach
    return {name: found[name] for name in stored if name in found}


def add_schema_rules(dataset: Dataset[Any]) -> Dataset[Any]:
    """The dataset with the rules of its `schema=`. In a table their failures quarantine rows; in a view they fail the flow.

    Raises DeclarationError if the schema is not understood, lacks a column that the declaration names, or has a rule's name twice.
    """
    if dataset.schema is None:
        return dataset
    text = split_schema_declaration(dataset.schema, dataset.label)
    _check_named_columns(dataset, text)
    rules = text.expectations(Action.QUARANTINE if dataset.kind.sets_rows_aside else Action.FAIL)
    return replace(dataset, expectations=_merge_expectations(rules, dataset.expectations, dataset.label))


def add_feed_schema_rules(cdc: AutoCdc) -> AutoCdc:
    """The declaration with the rules of its `schema=` on its feeds' rows, where they concern columns that are stored unchanged.

    The target has all of the rules. With `ignore_null_updates`, NULL in a change says nothing about the target.
    """
    if cdc.schema is None:
        return cdc
    text = split_schema_declaration(cdc.schema, cdc.owner)
    made_here = {*cdc.treatments, *cdc.of_intervals}
    late = {check.name for check in text.checks if check.columns & made_here}
    late |= {not_null_rule_name(column) for column in text.not_null if column in made_here}
    rules = [rule for rule in text.expectations(Action.QUARANTINE) if rule.name not in late]
    if cdc.ignore_null_updates:
        checks = {check.name for check in text.checks}
        rules = [replace(rule, null_ok=True) for rule in rules if rule.name in checks]
    return replace(cdc, expectations=_merge_expectations(rules, cdc.expectations, cdc.owner))


def _merge_expectations(rules: Sequence[Expectation], others: Sequence[Expectation], owner: str) -> tuple[Expectation, ...]:
    own = {rule.name: rule for rule in rules}
    for one in others:
        if one.name in own and one != own[one.name]:
            raise DeclarationError(
                f"{owner}: the expectation '{one.name}' has the name of a rule of its schema=; give it another."
            )
    return (*rules, *(one for one in others if one.name not in own))


def _check_named_columns(dataset: Dataset[Any], text: SchemaText) -> None:
    """Raises DeclarationError if the declaration names a column that its schema lacks. A change log has columns of its own."""
    if dataset.shape:
        return
    for of, columns in {**dataset.named_columns, "personal": tuple(dataset.treatments)}.items():
        for column in columns:
            if column not in text.columns:
                raise DeclarationError(
                    f"{dataset.label}: {of} names '{column}', no column of its schema=.{nearest_name_hint(column, text.columns)}"
                )
