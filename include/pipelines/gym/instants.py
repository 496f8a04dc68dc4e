"""Instants of epoch seconds, and ages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.declare import F

if TYPE_CHECKING:
    from pyspark.sql import Column

YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800
"""In seconds since 1970: every reader of a table can hold the instants between these two."""


def instant(seconds: str) -> Column:
    """The instant of a DOUBLE column of epoch seconds, to the microsecond; NULL outside the years 1 to 9999.

    A cast truncates, and so gives a microsecond too little for 1101664201.833407. Rounding gives the instant that
    was written: until 2106 the error of a DOUBLE and of its multiplication stays below half a microsecond.
    """
    value = F.col(seconds)
    microseconds = F.round(value * 1e6).cast("bigint")
    return F.when((value >= YEAR_1) & (value < YEAR_10000), F.timestamp_micros(microseconds))


def age(birth_date: str, at: str) -> Column:
    """The age in whole years, at an instant (UTC), of somebody born on a DATE."""
    birthday_to_come = F.date_format(at, "MMdd") < F.date_format(birth_date, "MMdd")
    return F.year(at) - F.year(birth_date) - birthday_to_come.cast("int")
