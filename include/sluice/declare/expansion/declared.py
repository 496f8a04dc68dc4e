"""What a pipeline file declares, and the selection of it by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import View
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table, TemporaryView
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source

Declared = Source | Dataset[Any] | TemporaryView | AutoCdc | View[Any]
Kind = TypeVar("Kind", bound=Declared)


class DeclarationsByKind:
    """Declarations, each kind of them in the order in which they were given. Two of one name are both among them.

    views: what @materialized_view declares; computed: what @view does; unstored: temporary views. queries: all that is made of something
    else and may be read by others, stored or not.
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
