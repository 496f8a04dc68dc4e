"""Identifiers that changed hands: rows of a table that has them count where they tell of a time during which the identifier was the person's."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.erasure.scan.inspection import Inspection
from sluice.erasure.scan.result import Clock, Needle

_MICROS = 1_000_000


def judge(batch: pa.RecordBatch, inspection: Inspection, decoder: str) -> None:
    """Count the rows of somebody's time. Rows that tell no time count as well; those of a table whose times cannot be read are told of."""
    clock = inspection.root.clock_at(inspection.path) if inspection.compiled.timed else None
    if clock is None:
        return
    names = {name.lower(): number for number, name in enumerate(batch.schema.names)}
    if clock.subject.lower() not in names:
        return
    subjects = batch.column(names[clock.subject.lower()])
    for number, needle in inspection.compiled.timed:
        same = _same(subjects, needle) if needle.domain == clock.domain else None
        if same is None or not pc.any(same, min_count=0).as_py():
            continue
        if clock.at is None or clock.at.lower() not in names:
            inspection.unread("rows of an identifier that changed hands, whose times cannot be read")
            continue
        times = batch.column(names[clock.at.lower()]).filter(same).to_pylist()
        count = sum(_inside(_micros(time, clock), needle) for time in times)
        if count:
            inspection.counts[decoder, clock.subject, number] += count


def _same(column: pa.Array, needle: Needle) -> Any:
    """Which values are the identifier; None for a column of a type that holds none."""
    kind, text = column.type, bytes(needle.value).decode() if isinstance(needle.value, bytes) else str(needle.value)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if not text.lstrip("-").isdecimal() or len(text) > 18:
            return None
        return pc.fill_null(pc.equal(column, pa.scalar(int(text), pa.int64())), False)
    if pa.types.is_dictionary(kind):
        return _same(column.dictionary_decode(), needle)
    if not any(fits(kind) for fits in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        return None
    return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column.cast(pa.large_string())), text), False)


def _micros(value: Any, clock: Clock) -> int | None:
    """An instant in microseconds since 1970; None where the row tells none."""
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(at.timestamp() * _MICROS)
    try:
        number = float(value) * _MICROS / clock.per_second
    except (TypeError, ValueError):
        return None
    return int(number) if math.isfinite(number) else None


def _inside(at: int | None, needle: Needle) -> bool:
    """Whether the identifier was the person's then; of a time that is not known it counts as theirs."""
    if at is None:
        return True
    return any((since is None or since <= at) and (until is None or at < until) for since, until in needle.times or ())
