"""`@view`: computed whenever it is read, never stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, overload

from sluice.declare import kinds
from sluice.declare.datasets.decorators import build_declaration_transform, build_sql_options
from sluice.declare.datasets.tables import Dataset, Names
from sluice.declare.kinds import DatasetKind
from sluice.declare.names import check_declared_name, check_names
from sluice.declare.quality.expectations import ExpectingTransform, P
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class View(Generic[P]):
    """A transform of tables and views that whoever reads it runs. It has no keys, no versions and no flow.

    A @materialized_view that reads it runs its transform over its inputs. personal: columns with personal data, beside those that it
    inherits by name. role: the role that a `role_view` is for; nothing stored may read such a view.
    """

    kind: ClassVar[DatasetKind] = kinds.COMPUTED_VIEW
    name: str
    function: Callable[P, DataFrame]
    reads: tuple[str, ...]
    personal: tuple[str, ...] = ()
    comment: str = ""
    declared_in: str = ""
    sql: str | None = None
    role: str | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """What the transform makes of these inputs."""
        return self.function(*args, **kwargs)

    def __post_init__(self) -> None:
        owner = f"View '{self.name}'"
        check_declared_name(self.name, "View")
        object.__setattr__(self, "reads", check_names(self.reads, "reads", owner))
        object.__setattr__(self, "personal", check_names(self.personal, "personal", owner))
        object.__setattr__(self, "comment", self.comment or inspect.getdoc(self.function) or "")
        object.__setattr__(self, "declared_in", self.declared_in or self.function.__module__)
        if not self.reads:
            raise DeclarationError(f"{owner}: reads may not be empty.")
        if self.sql is None and (taken := len(inspect.signature(self.function).parameters)) != len(self.reads):
            raise DeclarationError(f"{owner}: reads names {len(self.reads)} inputs, the function takes {taken}.")

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.declared_in


@overload
def view(
    *, reads: Names, name: str | None = None, personal: Names = (), comment: str = ""
) -> Callable[[Callable[P, DataFrame]], View[P]]: ...
@overload
def view(*, name: str, reads: Names, sql: str, personal: Names = (), comment: str = "") -> View[...]: ...
def view(
    *, reads: Names, name: str | None = None, sql: str | None = None, personal: Names = (), comment: str = ""
) -> Callable[[Callable[P, DataFrame]], View[P]] | View[...]:
    """Declare the decorated transform as a view that is computed whenever it is read. See `View`.

    sql: a text over the names that are read, instead of a function; `view` then returns the view itself.
    """
    read, private = check_names(reads, "reads", "A @view"), check_names(personal, "personal", "A @view")
    if sql is not None:
        options = {"name": name, "reads": read}
        module = build_sql_options(sql, options)["declared_in"]
        function = build_declaration_transform(sql, options, "View")
        return View(
            name=name or "", function=function, reads=read, personal=private, comment=comment, declared_in=module, sql=sql
        )

    def declare(function: Callable[P, DataFrame]) -> View[P]:
        if isinstance(function, Dataset | View):
            raise DeclarationError(f"'{function.name}' is declared twice: a @view is not stored, a @materialized_view is.")
        if isinstance(function, ExpectingTransform):
            raise DeclarationError(
                "A @view has no expectations, since nothing of it is stored. Expect them of the tables that it reads, or make it a "
                "@materialized_view."
            )
        return View(name=name or function.__name__, function=function, reads=read, personal=private, comment=comment)

    return declare
