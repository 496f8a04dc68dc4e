"""How far in time a change of an input reaches in a view that looks at neighbours, such as a moving sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.declare.field_types import check_field_types
from sluice.declare.pipeline import is_interval
from sluice.declare.quoting import quote_identifier
from sluice.errors import DeclarationError

NOTHING = "0 days"


@dataclass(frozen=True)
class TimeReach:
    """A change of an input at day or instant d touches only the view's rows whose `column` lies from d - before to d + after.

    column: a DATE or TIMESTAMP column of the view. before, after: intervals such as "6 days". input: the SQL expression over the input
    that gives d, a DATE or TIMESTAMP; by default the column of the same name. If one of the two is a day and the other an instant, the
    whole day counts. A change whose d is NULL may touch any row.

    A reach narrows what is recomputed, in addition to what Spark's optimiser finds by itself. It is a promise that the engine believes:
    if it does not hold, outdated rows stay in the view, and `sluice verify` finds them.
    """

    column: str
    before: str = NOTHING
    after: str = NOTHING
    input: str = ""

    def __post_init__(self) -> None:
        check_field_types(self, f"TimeReach('{self.column}')", {"before": "'6 days'", "after": "'6 days'"})
        object.__setattr__(self, "input", self.input or quote_identifier(self.column))
        for field in ("before", "after"):
            if not is_interval(getattr(self, field)):
                raise DeclarationError(
                    f"TimeReach('{self.column}'): {field} is an interval such as '6 days', not '{getattr(self, field)}'."
                )


def check_time_reach(reach: Mapping[str, TimeReach], reads: tuple[str, ...], owner: str) -> dict[str, TimeReach]:
    """Check the reaches that a view declares, by input. Raises DeclarationError for an unknown input, or for two columns of the view."""
    for name in reach:
        if name not in reads:
            raise DeclarationError(f"{owner}: reach names '{name}', which it does not read: {', '.join(reads)}.")
    if len({one.column for one in reach.values()}) > 1:
        raise DeclarationError(f"{owner}: reach must use the same column of the view for all inputs.")
    return dict(reach)
