"""Declarations that stand for others: a table that reads a temporary view reads its source, and runs both transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.declare.source import Source
from sluice.declare.tables import Dataset, Table, TemporaryView
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyDataset = Dataset[Any]
Declared = Source | AnyDataset | TemporaryView


def expanded(declared: Iterable[Declared]) -> list[Source | AnyDataset]:
    """The declarations without temporary views. Raises DeclarationError where those read each other in a circle."""
    everything = list(declared)
    views = {item.name: item for item in everything if isinstance(item, TemporaryView)}
    return [_inlined(item, views) for item in everything if not isinstance(item, TemporaryView)]


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
    made_by = (*(view.sql or view.function for view in passed), *(item.made_by or (item.function,)))
    # What a SQL text reads stays a name that it knows: its function takes the frame by position.
    return replace(item, reads=(source,), function=composed(passed, item.function), made_by=made_by, sql=item.sql)
