"""Finds the column that gives the time of a table's rows, as far as a reader without Spark can tell: for identifiers that change hands."""

from __future__ import annotations

import re

from residue import TableClock
from sluice.declare.assembly import subjects
from sluice.lake.pipeline_lake import PipelineLake

_CALL = re.compile(r"(try_cast|cast|timestamp_seconds|timestamp_millis|timestamp_micros)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_AS = re.compile(r"(.*?)\s+AS\s+(TIMESTAMP|BIGINT|DOUBLE)", re.IGNORECASE | re.DOTALL)
_TIMES = re.compile(r"(.*?)\s*\*\s*(1e3|1e6|1000|1000000)", re.IGNORECASE | re.DOTALL)
_PER_SECOND = {"timestamp_seconds": 1.0, "timestamp_millis": 1e3, "timestamp_micros": 1e6}


def find_table_clocks(lake: PipelineLake) -> dict[str, TableClock]:
    """For each table kept by identifiers that change hands: the subject of its rows, and the column with their time.

    Views are left out because they are recomputed from these tables, and so are tables whose subject is inside a column.
    """
    changing, found = lake.graph.changing_hands(), {}
    for declared in lake.graph:
        domain = lake.graph.domain(declared)
        if declared.subject and domain in changing and not declared.subject_in:
            at, per_second = parse_instant_expression(subjects.subject_time_expression(declared) or "")
            path = lake.path(declared.name)
            found[lake.graph.table_of(declared.name)] = TableClock(path, str(domain), declared.subject, at, per_second)
    return found


def parse_instant_expression(text: str) -> tuple[str | None, float]:
    """The column of an SQL expression for an instant, and how many of its units make a second. None for an unknown form.

    Known forms: a column, CAST(column AS TIMESTAMP), and timestamp_seconds, _millis and _micros of one, with casts and a factor inside.
    """
    per_second, text = 1.0, text.strip()
    while not re.fullmatch(r"`?\w+`?", text):
        called, times = _CALL.fullmatch(text), _TIMES.fullmatch(text)
        if times and times.group(1).count("(") == times.group(1).count(")"):
            text, per_second = times.group(1).strip(), per_second / float(times.group(2))
        elif called and "cast" in called.group(1).lower() and (kind := _AS.fullmatch(called.group(2))):
            text = kind.group(1).strip()
        elif called and called.group(1).lower() in _PER_SECOND:
            text, per_second = called.group(2).strip(), per_second * _PER_SECOND[called.group(1).lower()]
        else:
            return None, 1.0
    return text.strip("`") or None, per_second
