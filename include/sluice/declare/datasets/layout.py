"""How the files of one table are kept, beyond what holds for all tables of a pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sluice.declare.names import check_names
from sluice.declare.pipeline import is_interval, parse_duration
from sluice.errors import DeclarationError


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Properties of a table. What is not said is as for every table.

    retain: how long removed files stay, in place of the pipeline's `retain`; only of tables without personal columns, since an erasure goes
    by the pipeline's. keep_log: how long commits stay in the table's log (an interval; 30 days by itself), at least as long as removed files.
    statistics: the columns of which the log holds least and greatest values, in place of the keys, the `zorder_by` and the first others. A
    table with statistics of fractions is written by Spark alone.
    """

    retain: str | None = None
    keep_log: str | None = None
    statistics: tuple[str, ...] | str | None = None

    def __post_init__(self) -> None:
        for name in ("retain", "keep_log"):
            value = getattr(self, name)
            if value is not None and not is_interval(value):
                raise DeclarationError(f"Layout: {name} is an interval such as '14 days', not '{value}'.")
        if self.statistics is not None:
            object.__setattr__(self, "statistics", check_names(self.statistics, "statistics", "Layout"))

    @property
    def statistics_columns(self) -> tuple[str, ...]:
        """Those that are declared."""
        return check_names(self.statistics or (), "statistics", "Layout")

    def find_mistakes(self, private: Collection[str]) -> Iterator[str]:
        """What does not fit a table with these personal columns, or in itself, as sentences without their beginning."""
        hidden = {name.lower() for name in private}  # to Spark, upper and lower case are one
        for name in self.statistics_columns:
            if name.lower() in hidden:
                yield f"layout.statistics names the personal column '{name}'; its values must not get into the log."
        if self.retain and private:
            yield "layout.retain: a table with personal columns goes by the retain= of its pipeline, as its erasures do. Leave it out."
        if self.retain and self.keep_log and parse_duration(self.keep_log) < parse_duration(self.retain):
            yield f"layout.keep_log ('{self.keep_log}') is shorter than layout.retain ('{self.retain}'); a log says which files are kept."
