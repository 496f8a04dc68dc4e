"""Views that are never stored: `@view` declares one that is computed at each read, `role_view` shows a role its rows and columns, masked.

`@temporary_view` declares a transform that whatever reads it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from sluice.declare import kinds
from sluice.declare.datasets.dataset import Dataset, Names
from sluice.declare.datasets.decorator_options import build_unstored_fields
from sluice.declare.datasets.made_rows import call_transform
from sluice.declare.declaration import Declaration
from sluice.declare.field_values import add_parent_columns, check_declared_name, check_field_types, check_names
from sluice.declare.kinds import DatasetKind
from sluice.declare.lazy_spark import F
from sluice.declare.pipeline import Pipeline
from sluice.declare.privacy.mask import Mask
from sluice.declare.quality.expectations import ExpectingTransform, P
from sluice.declare.quoting import quote_column
from sluice.declare.recorded_declarations import find_calling_module, record_declaration, watch_decorator
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class View(Declaration, Generic[P]):
    """A transform of tables and views that runs whenever it is read. It has no keys, no versions and no flow.

    A @materialized_view that reads it runs its transform over its inputs. personal: columns with personal data, in addition to those
    inherited by name. role: the role that a `role_view` is for; nothing stored may read such a view.
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
        """Returns what the transform makes of these inputs."""
        return call_transform(self.function, self.label, *args, **kwargs)

    def __post_init__(self) -> None:
        owner = f"View '{self.name}'"
        check_declared_name(self.name, "View")
        check_field_types(self, owner)
        object.__setattr__(self, "reads", check_names(self.reads, "reads", owner))
        object.__setattr__(self, "personal", check_names(self.personal, "personal", owner))
        self.fill_from_function(self.function)
        if not self.reads:
            raise DeclarationError(f"{owner}: reads may not be empty.")
        if self.sql is None and (taken := len(inspect.signature(self.function).parameters)) != len(self.reads):
            raise DeclarationError(f"{owner}: reads names {len(self.reads)} inputs, the function takes {taken}.")
        record_declaration(self)


@overload
def view(
    *, reads: Names, name: str | None = None, personal: Names = (), comment: str = ""
) -> Callable[[Callable[P, DataFrame]], View[P]]: ...
@overload
def view(*, name: str, reads: Names, sql: str, personal: Names = (), comment: str = "") -> View[...]: ...
def view(
    *, reads: Names, name: str | None = None, sql: str | None = None, personal: Names = (), comment: str = ""
) -> Callable[[Callable[P, DataFrame]], View[P]] | View[...]:
    """Declares the decorated transform as a view that is computed whenever it is read. See `View`.

    sql: a query over the names in `reads`, instead of a function; `view` then returns the view itself.
    """
    read, private = check_names(reads, "reads", "A @view"), check_names(personal, "personal", "A @view")
    if sql is not None:
        return View(reads=read, personal=private, comment=comment, **build_unstored_fields(sql, name, read, "View"))

    def declare(function: Callable[P, DataFrame]) -> View[P]:
        if isinstance(function, Dataset | View):
            raise DeclarationError(f"'{function.name}' is declared twice: a @view is not stored, a @materialized_view is.")
        if isinstance(function, ExpectingTransform):
            raise DeclarationError(
                "A @view has no expectations, since nothing of it is stored. Expect them of the tables that it reads, or make it a "
                "@materialized_view."
            )
        return View(name=name or function.__name__, function=function, reads=read, personal=private, comment=comment)

    return watch_decorator(declare, "view")


@dataclass(frozen=True, kw_only=True)
class MaskedProjection:
    """The transform of a role's view: filters rows, selects the listed columns and masks them.

    masks: by column; None shows a personal column unmasked. rows: an SQL condition over the stored rows.
    """

    owner: str
    columns: tuple[str, ...]
    masks: Mapping[str, Mask | None]
    rows: str | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Returns what the role sees. Raises DeclarationError for a column that does not exist."""
        for name in self.columns:
            if name not in frame.columns:
                raise DeclarationError(
                    f"{self.owner}: columns names '{name}', which is not a column of its input.{nearest_name_hint(name, frame.columns)}"
                )
        rows = frame if self.rows is None else frame.where(F.expr(self.rows))
        masks = {name: self.masks.get(name) for name in self.columns}
        return rows.select(*(mask.shown(name).alias(name) if mask else quote_column(name) for name, mask in masks.items()))

    def mask_names(self) -> dict[str, str]:
        """Returns what hides each column that the role sees masked, such as "mask: redact"."""
        return {name: f"mask: {mask.kind}" for name, mask in self.masks.items() if mask is not None and name in self.columns}


def role_view(
    name: str,
    *,
    reads: str,
    role: str,
    columns: Names,
    masks: Mapping[str, Mask | None] | None = None,
    rows: str | None = None,
    comment: str = "",
) -> View[...]:
    """Declares what a role may see. Columns that the table gets later are not shown.

    columns: the columns shown. masks: by column; every personal column needs one. rows: an SQL condition over the stored rows that
    selects those shown. Raises DeclarationError if a mask names a column that is not shown.
    """
    owner = f"View '{name}'"
    shown = check_names(columns, "columns", owner)
    given = dict(masks or {})
    if not shown:
        raise DeclarationError(
            f"{owner}: columns may not be empty; it lists what the role sees, as in columns=('city', 'email')."
        )
    for column, how in given.items():
        if column not in shown:
            raise DeclarationError(f"{owner}: masks names '{column}', which it does not show.{nearest_name_hint(column, shown)}")
        if how is not None and not isinstance(how, Mask):
            raise DeclarationError(
                f"{owner}: the mask of '{column}' is one of sluice.declare.mask, as in mask.redact(), or None."
            )
    if rows is not None and not rows.strip():
        raise DeclarationError(f"{owner}: rows is a condition over a row, as in \"country = 'IT'\".")
    transform = MaskedProjection(owner=owner, columns=shown, masks=given, rows=rows)
    module, said = find_calling_module(), comment or f"What the role '{role}' may see of {reads}."
    return View(name=name, function=transform, reads=(reads,), comment=said, declared_in=module, role=role)


def find_role_view_mistakes(pipeline: Pipeline, view: View[Any], inherited: frozenset[str]) -> Iterator[str]:
    """Yields what is wrong with a role's view. inherited: the names of the personal columns of what it reads."""
    if view.role is None or not isinstance(view.function, MaskedProjection):
        return
    if view.role not in pipeline.roles:
        hint = nearest_name_hint(view.role, pipeline.roles)
        yield f"View '{view.name}': there is no role '{view.role}'.{hint} Roles are named in Pipeline(roles=...)."
    hidden = {name.lower() for name in add_parent_columns(inherited)}
    for column in view.function.columns:
        if column.lower() in hidden and column not in view.function.masks:
            yield (
                f"View '{view.name}': it shows the personal column '{column}' to the role '{view.role}'. Mask it, as in masks={{'{column}': "
                f"mask.redact()}}; if the role is to see it, say so: masks={{'{column}': None}}."
            )


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
