"""`role_view`: the rows and columns of a table or view that a role may see, filtered and masked whenever it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.declare.datasets.computed import View
from sluice.declare.datasets.decorators import find_calling_module
from sluice.declare.datasets.tables import Names
from sluice.declare.lazy import F
from sluice.declare.names import add_parent_columns, check_names
from sluice.declare.pipeline import Pipeline
from sluice.declare.privacy.mask import Mask
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class MaskedProjection:
    """The transform of a role's view: it filters rows, selects the listed columns and masks them.

    masks: by column; None shows a personal column as it is. rows: SQL over the rows as they are stored.
    """

    owner: str
    columns: tuple[str, ...]
    masks: Mapping[str, Mask | None]
    rows: str | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """What the role sees. Raises DeclarationError for a column that is not there."""
        for name in self.columns:
            if name not in frame.columns:
                raise DeclarationError(
                    f"{self.owner}: columns names '{name}', no column of what it reads.{nearest_name_hint(name, frame.columns)}"
                )
        rows = frame if self.rows is None else frame.where(F.expr(self.rows))
        masks = {name: self.masks.get(name) for name in self.columns}
        return rows.select(*(mask.shown(name).alias(name) if mask else F.col(f"`{name}`") for name, mask in masks.items()))


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
    """Declare what a role may see. Columns that the table gets later are not shown.

    columns: the columns shown. masks: by column; every personal column has one. rows: which rows, as SQL over them as they are stored.
    Raises DeclarationError where a mask names a column that is not shown.
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
    """What is wrong with a role's view. inherited: the personal columns of what it reads, by name."""
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
