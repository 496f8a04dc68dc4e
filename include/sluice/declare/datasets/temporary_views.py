"""`@temporary_view` declares a transform that is never stored: whatever reads it runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, overload

from sluice.declare import kinds
from sluice.declare.datasets.decorator_options import build_unstored_fields
from sluice.declare.datasets.made_rows import call_transform
from sluice.declare.declaration import Declaration
from sluice.declare.declared_places import record_declaration, watch_decorator
from sluice.declare.field_types import check_field_types
from sluice.declare.kinds import DatasetKind
from sluice.declare.names import check_declared_name, check_names
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        return call_transform(self.function, self.label, frame)

    def __post_init__(self) -> None:
        owner = f"Temporary view '{self.name}'"
        check_declared_name(self.name, "Temporary view")
        check_field_types(self, owner)
        object.__setattr__(self, "reads", check_names(self.reads, "reads", owner))
        self.fill_from_function(self.function)
        if len(self.reads) != 1:
            raise DeclarationError(f"{owner} reads {len(self.reads)} inputs; it reads one source, or another temporary view.")
        record_declaration(self)


@overload
def temporary_view(*, reads: str, name: str | None = None) -> Callable[[Callable[[DataFrame], DataFrame]], TemporaryView]: ...
@overload
def temporary_view(*, name: str, reads: str, sql: str, comment: str = "") -> TemporaryView: ...
def temporary_view(
    *, reads: str, name: str | None = None, sql: str | None = None, comment: str = ""
) -> Callable[[Callable[[DataFrame], DataFrame]], TemporaryView] | TemporaryView:
    """Declares the decorated row-local transform as a view that is never stored: whatever reads it runs it. See `TemporaryView`.

    sql: a query over the name in `reads`, instead of a function; `temporary_view` then returns the view itself.
    """
    if sql is not None:
        return TemporaryView(reads=(reads,), comment=comment, **build_unstored_fields(sql, name, reads, "Temporary view"))

    def declare(function: Callable[[DataFrame], DataFrame]) -> TemporaryView:
        return TemporaryView(name=name or function.__name__, function=function, reads=(reads,), comment=comment)

    return watch_decorator(declare, "temporary_view")
