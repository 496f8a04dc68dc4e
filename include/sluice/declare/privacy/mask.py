"""Masks: what a role's view shows instead of a column, as in `masks={"email": mask.domain(), "phone": mask.last(4)}`.

A mask hides a value from readers of the view and changes nothing that is stored. `treat` changes what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sluice.declare.lazy_spark import F
from sluice.declare.quoting import quote_column
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import Column

HIDDEN = "***"
Kind = Literal["redact", "first", "last", "domain", "null", "sql"]


@dataclass(frozen=True, kw_only=True)
class Mask:
    """A mask of one column. amount: how many characters stay visible. text: the SQL expression over the row to show instead."""

    kind: Kind
    amount: int = 0
    text: str = ""

    def shown(self, column: str) -> Column:
        """Returns what is shown of the column. NULL stays NULL, except with "sql"."""
        value = quote_column(column)
        if self.kind == "sql":
            return F.expr(self.text)
        if self.kind == "null":
            return F.when(F.lit(False), value)  # of the column's type
        text = value.cast("string")
        if self.kind == "redact":
            return F.when(value.isNotNull(), F.lit(HIDDEN))
        if self.kind == "domain":
            return F.when(text.contains("@"), F.concat(F.lit(f"{HIDDEN}@"), F.substring_index(text, "@", -1))).when(
                value.isNotNull(), F.lit(HIDDEN)
            )
        part = F.substring(text, 1, self.amount) if self.kind == "first" else F.right(text, F.lit(self.amount))
        shown = F.concat(part, F.lit(HIDDEN)) if self.kind == "first" else F.concat(F.lit(HIDDEN), part)
        # Without this, a text hardly longer than the shown part would be shown almost whole.
        return F.when(F.length(text) >= 2 * self.amount, shown).when(value.isNotNull(), F.lit(HIDDEN))


def redact() -> Mask:
    """`***` for every value."""
    return Mask(kind="redact")


def first(characters: int) -> Mask:
    """The first characters, then `***`; `***` alone where the text is not at least twice as long."""
    return Mask(kind="first", amount=_check_character_count("first", characters))


def last(characters: int) -> Mask:
    """`***`, then the last characters; `***` alone where the text is not at least twice as long."""
    return Mask(kind="last", amount=_check_character_count("last", characters))


def domain() -> Mask:
    """`***@` and what follows the last @ of an e-mail address; `***` for any other text."""
    return Mask(kind="domain")


def null() -> Mask:
    """NULL, of the column's type."""
    return Mask(kind="null")


def sql(expression: str) -> Mask:
    """The result of the SQL expression over the row, as in mask.sql("date_trunc('year', born)")."""
    if not expression.strip():
        raise DeclarationError("mask.sql takes an expression over the row, as in mask.sql(\"date_trunc('year', born)\").")
    return Mask(kind="sql", text=expression)


def _check_character_count(name: str, characters: int) -> int:
    if not isinstance(characters, int) or characters < 1:
        raise DeclarationError(f"mask.{name} takes how many characters are shown, from 1 on, not {characters!r}.")
    return characters
