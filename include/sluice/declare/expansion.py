"""Declarations that stand for others: a table that reads a temporary view reads its source, and runs both transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.declare import cdc_tables
from sluice.declare.auto_cdc import AutoCdc
from sluice.declare.schema_rules import of_feed, ruled
from sluice.declare.source import Source
from sluice.declare.sql_tokens import meaning
from sluice.declare.tables import Dataset, Table, TemporaryView
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyDataset = Dataset[Any]
Declared = Source | AnyDataset | TemporaryView | AutoCdc


def expanded(declared: Iterable[Declared]) -> list[Source | AnyDataset]:
    """The declarations as sources, tables and views: without temporary views, with the logs that `auto_cdc` keeps and the rules of schemas.

    Raises DeclarationError where temporary views read each other in a circle.
    """
    everything = [part for item in declared for part in _by_log(item)]
    views = {item.name: item for item in everything if isinstance(item, TemporaryView)}
    sources = {item.name: item for item in everything if isinstance(item, Source)}
    found: list[Source | AnyDataset] = []
    for item in everything:
        if isinstance(item, AutoCdc):
            found += [_inlined(part, views) for part in cdc_tables.tables(of_feed(item), _private(item, views, sources))]
        elif not isinstance(item, TemporaryView):
            found.append(_inlined(item, views))
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
