"""Identifiers that changed hands: a row with one counts if its time lies in the period when the identifier was the person's."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from residue.inspection import Inspection
from residue.result import Needle, TableClock

_MICROS = 1_000_000
_INT64 = range(-(2**63), 2**63)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
)


def count_timed_rows(batch: pa.RecordBatch, inspection: Inspection, decoder: str) -> None:
    """Counts the rows within a person's time. Rows without a time count too; a table whose times cannot be read is reported."""
    clock = inspection.root.clock_at(inspection.path) if inspection.compiled.timed else None
    if clock is None:
        return
    names = {name.lower(): number for number, name in enumerate(batch.schema.names)}
    if clock.subject.lower() not in names:
        return
    wanted = [(number, needle) for number, needle in inspection.compiled.timed if needle.domain == clock.domain]
    subjects = _convert_to_filterable(batch.column(names[clock.subject.lower()]))
    near = _match_identifiers(subjects, [needle for _, needle in wanted])
    if near is None or not pc.any(near, min_count=0).as_py():
        return
    subjects = subjects.filter(near)
    for number, needle in wanted:
        same = _match_identifiers(subjects, [needle])
        if same is None or not pc.any(same, min_count=0).as_py():
            continue
        if clock.at is None or clock.at.lower() not in names:
            inspection.unread("rows of an identifier that changed hands, whose times cannot be read", needle.of)
            continue
        times = _convert_to_filterable(batch.column(names[clock.at.lower()])).filter(near).filter(same).to_pylist()
        count = sum(_is_within_times(_convert_to_epoch_microseconds(one, clock), needle) for one in times)
        if count:
            inspection.counts[decoder, clock.subject, number] += count


def _convert_to_filterable(column: pa.Array) -> pa.Array:
    """Converts values to a type that can be filtered, and strips blanks around texts."""
    if pa.types.is_dictionary(column.type):
        return _convert_to_filterable(column.dictionary_decode())
    if any(holds(column.type) for holds in _TEXTS):
        return pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    return column


def _match_identifiers(column: pa.Array, needles: Sequence[Needle]) -> Any:
    """Which values of a flat column are one of the identifiers; None for a type that can hold none."""
    kind, texts = column.type, [_needle_text(one) for one in needles]
    if any(holds(kind) for holds in _NUMBERS):
        numbers = [int(text) for text in texts if re.fullmatch(r"-?[0-9]{1,19}", text) and int(text) in _INT64]
        return _match_numbers(column, numbers) if numbers else None
    if not texts or not pa.types.is_large_string(kind):
        return None
    return pc.is_in(column, pa.array(texts, pa.large_string()))


def _match_numbers(column: pa.Array, numbers: Sequence[int]) -> Any:
    kind = column.type
    if pa.types.is_decimal(kind):
        fitting = [Decimal(one) for one in numbers if len(str(abs(one))) + kind.scale <= kind.precision]
        return pc.is_in(column, pa.array(fitting, kind))
    common = pa.float64() if pa.types.is_floating(kind) else pa.int64()
    return pc.is_in(column.cast(common, safe=False), pa.array(numbers, pa.int64()).cast(common, safe=False))


def _needle_text(needle: Needle) -> str:
    return needle.value.decode() if isinstance(needle.value, bytes) else str(needle.value)


def _convert_to_epoch_microseconds(value: Any, clock: TableClock) -> int | None:
    """An instant in microseconds since 1970; None if the row has none."""
    if isinstance(value, str):
        value = _parse_iso_instant(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(at.timestamp() * _MICROS)
    try:
        number = float(value) * _MICROS / clock.per_second
    except (TypeError, ValueError):
        return None
    return int(number) if math.isfinite(number) else None


def _parse_iso_instant(text: str) -> datetime | str:
    """Parses a text as an instant (ISO 8601 with dashes; digits alone are a number), or returns it unchanged."""
    try:
        return datetime.fromisoformat(text) if text[4:5] == "-" else text
    except ValueError:
        return text


def _is_within_times(at: int | None, needle: Needle) -> bool:
    """Whether the identifier was the person's then; an unknown time counts as theirs."""
    if at is None:
        return True
    return any((since is None or since <= at) and (until is None or at < until) for since, until in needle.times or ())
