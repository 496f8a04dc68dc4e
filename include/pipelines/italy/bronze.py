"""What is delivered: one file a day, and many of them again later, corrected."""

from __future__ import annotations

from sluice.declare import Source

# No schema: the header changed eight times in half a year. Every column that ever came is kept, as text.
regional_reports = Source(
    name="regional_reports",
    format="csv",
    path="regional_reports",
    infer_types=False,
    pattern="dpc-covid19-ita-regioni-*.csv",
    redelivery="replace",
    date_in_path="%Y%m%d",
    comment="Daily reports of the Italian regions, one file a day. A file that comes again replaces it.",
)
