"""What a pipeline file declares, and the selection of it by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, TypeVar

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import View
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table, TemporaryView
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source

Declared = Source | Dataset[Any] | TemporaryView | AutoCdc | View[Any]
Kind = TypeVar("Kind", bound=Declared)


class DeclarationsByKind:
    """Declarations, each kind of them in the order in which they were given. Two of one name are both among them."""

    def __init__(self, declared: Iterable[Declared]) -> None:
        self._declared = tuple(declared)

    def __iter__(self) -> Iterator[Declared]:
        return iter(self._declared)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Files and topics."""
        return self._select_kind(Source)

    @cached_property
    def datasets(self) -> tuple[Dataset[Any], ...]:
        """All that is stored and made of something else."""
        return self._select_kind(Dataset)

    @cached_property
    def tables(self) -> tuple[Table[Any], ...]:
        """What @table declares."""
        return self._select_kind(Table)

    @cached_property
    def views(self) -> tuple[MaterializedView[Any], ...]:
        """What @materialized_view declares."""
        return self._select_kind(MaterializedView)

    @cached_property
    def streams(self) -> tuple[Windowed[Any], ...]:
        """What @windowed declares."""
        return self._select_kind(Windowed)

    @cached_property
    def computed(self) -> tuple[View[Any], ...]:
        """What @view declares."""
        return self._select_kind(View)

    @cached_property
    def unstored(self) -> tuple[TemporaryView, ...]:
        """What @temporary_view declares."""
        return self._select_kind(TemporaryView)

    @cached_property
    def queries(self) -> tuple[Dataset[Any] | View[Any], ...]:
        """All that is made of something else, stored or not, and may be read by others."""
        return tuple(item for item in self._declared if isinstance(item, Dataset | View))

    def _select_kind(self, kind: type[Kind]) -> tuple[Kind, ...]:
        return tuple(item for item in self._declared if isinstance(item, kind))
