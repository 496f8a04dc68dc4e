"""Which tables tell by a column of theirs of what time a row is, as far as a reader without Spark can tell: for identifiers that change hands."""

from __future__ import annotations

import re

from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.source import Source
from sluice.erasure.scan import Clock
from sluice.lake.places import OfPipeline
from sluice.settings import Settings

_CALL = re.compile(r"(try_cast|cast|timestamp_seconds|timestamp_millis|timestamp_micros)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_AS = re.compile(r"(.*?)\s+AS\s+(TIMESTAMP|BIGINT|DOUBLE)", re.IGNORECASE | re.DOTALL)
_TIMES = re.compile(r"(.*?)\s*\*\s*(1e3|1e6|1000|1000000)", re.IGNORECASE | re.DOTALL)
_PER_SECOND = {"timestamp_seconds": 1.0, "timestamp_millis": 1e3, "timestamp_micros": 1e6}


def of(settings: Settings, graph: Graph) -> dict[str, Clock]:
    """By table, for each that is kept by identifiers that change hands: whose its rows are, and where they tell their time.

    Views are not among them: they are made anew of these tables. Nor is what has its subject inside of a column.
    """
    changing, places, found = graph.changing_hands(), OfPipeline(settings, graph), {}
    for declared in graph:
        domain = graph.domain(declared)
        inside = isinstance(declared, Source) and declared.subject_in
        if isinstance(declared, Source | Table) and declared.subject and domain in changing and not inside:
            at, per_second = read(subjects.instant(declared) or "")
            path = places.table(declared.name)
            found[graph.table_of(declared.name)] = Clock(path, str(domain), declared.subject, at, per_second)
    return found


def read(text: str) -> tuple[str | None, float]:
    """The column of an SQL expression of an instant, and how many of its units are a second. None where it is of no form that is known here.

    Known are a column, CAST(column AS TIMESTAMP), timestamp_seconds, _millis and _micros of one, with casts and a factor within.
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
