"""Declarations that stand for others: what reads a view that is not stored reads what that one reads, and runs both transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import View
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table, TemporaryView
from sluice.declare.datasets.time_reach import TimeReach
from sluice.declare.expansion import cdc_tables
from sluice.declare.expansion.schema_rules import of_feed, ruled
from sluice.declare.ingest.source import Source
from sluice.declare.sql.tokens import meaning
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyDataset = Dataset[Any]
Declared = Source | AnyDataset | TemporaryView | AutoCdc | View[Any]


def expanded(declared: Iterable[Declared]) -> list[Source | AnyDataset]:
    """The declarations that are stored: without views that are not, with the logs that `auto_cdc` keeps and the rules of schemas.

    Raises DeclarationError where views that are not stored read each other in a circle.
    """
    everything = [part for item in declared for part in _by_log(item)]
    views = {item.name: item for item in everything if isinstance(item, TemporaryView)}
    computed = {item.name: item for item in everything if isinstance(item, View)}
    sources = {item.name: item for item in everything if isinstance(item, Source)}
    found: list[Source | AnyDataset] = []
    for item in everything:
        if isinstance(item, AutoCdc):
            found += [_inlined(part, views) for part in cdc_tables.tables(of_feed(item), _private(item, views, sources))]
        elif not isinstance(item, TemporaryView | View):
            found.append(_over_computed(item, computed) if isinstance(item, MaterializedView) else _inlined(item, views))
    return [item if isinstance(item, Source) else ruled(item) for item in found]


def _by_log(item: Declared) -> tuple[Declared, ...]:
    return cdc_tables.of_table(item) if isinstance(item, Table) and item.apply_as_deletes else (item,)


def _private(cdc: AutoCdc, views: Mapping[str, TemporaryView], sources: Mapping[str, Source]) -> dict[str, frozenset[str]]:
    """The personal columns of the sources that an `auto_cdc` reads in the end. What is no source is found wrong elsewhere."""
    read = (through(views, feed)[0] for feed in cdc.reads)
    return {name: sources[name].private for name in read if name in sources}


def through(views: Mapping[str, TemporaryView], name: str) -> tuple[str, tuple[TemporaryView, ...]]:
    """What is read in the end where `name` is read, and the temporary views on the way, the nearest to the source first."""
    passed: list[TemporaryView] = []
    while name in views:
        if views[name] in passed:
            raise DeclarationError(f"Temporary views read each other in a circle: {' > '.join(view.name for view in passed)}.")
        passed.append(views[name])
        name = views[name].reads[0]
    return name, tuple(reversed(passed))


def composed(first: Iterable[TemporaryView], last: Callable[..., DataFrame]) -> Callable[[DataFrame], DataFrame]:
    """The transform that runs temporary views, then another."""
    steps = tuple(first)

    def run(frame: DataFrame) -> DataFrame:
        for step in steps:
            frame = step(frame)
        return last(frame)

    return run


def _inlined(item: Source | AnyDataset, views: Mapping[str, TemporaryView]) -> Source | AnyDataset:
    if not isinstance(item, Table) or len(item.reads) != 1 or item.reads[0] not in views:
        return item
    source, passed = through(views, item.reads[0])
    made_by = (*(meaning(view.sql) if view.sql else view.function for view in passed), *(item.made_by or (item.function,)))
    # What a SQL text reads stays a name that it knows: its function takes the frame by position.
    return replace(item, reads=(source,), function=composed(passed, item.function), made_by=made_by, sql=item.sql)


def passing(computed: Mapping[str, View[Any]], reads: Iterable[str]) -> tuple[View[Any], ...]:
    """The views that are computed when `reads` are read, each after those that it reads. Raises DeclarationError for a circle."""
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


def _over_computed(item: MaterializedView[Any], computed: Mapping[str, View[Any]]) -> MaterializedView[Any]:
    """The view over what the computed views that it reads are made of, so that it follows changes of that."""
    passed = passing(computed, item.reads)
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
    reach = _reach(item, computed, stored)
    return replace(item, reads=stored, function=run, made_by=made_by, personal=personal, reach=reach)


def _reach(item: MaterializedView[Any], computed: Mapping[str, View[Any]], stored: tuple[str, ...]) -> dict[str, TimeReach]:
    """The declared reach of a computed view, as that of the one table that it is made of."""
    found = {}
    for name, reach in item.reach.items():
        made_of = {read for view in passing(computed, (name,)) for read in view.reads if read not in computed} or {name}
        if len(made_of) > 1:
            raise DeclarationError(
                f"View '{item.name}': reach names '{name}', a @view of several tables ({', '.join(sorted(made_of))}); how far a change of "
                "each of them reaches cannot be said by it. Read these tables instead."
            )
        found[made_of.pop()] = reach
    return {name: found[name] for name in stored if name in found}
