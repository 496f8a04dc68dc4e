"""Records of JSON into rows: each block by the quickest way that is right for it.

Three ways that give the same: Arrow's reader for the whole block; where that finds something odd, a look at each record, and Arrow's
reader for those that fit; and the exact one, record by record, for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.formats import Parsed
from sluice.ingest.formats.json_exact import Exact
from sluice.ingest.formats.json_fast import Fast, Mask
from sluice.ingest.formats.json_verified import Verified

_Part = tuple[Sequence[int], pa.Table]
"""Rows, and the places of their records in the block."""


class Records:
    """Reads blocks of records of one file."""

    def __init__(self, source: Source, schema: pa.Schema, path_values: Mapping[str, str]) -> None:
        self._fast = Fast(source, schema, path_values)
        self._verified = Verified(schema)
        self._exact = Exact(source, schema, path_values)

    def parsed(self, block: bytes, count: int | None, texts: Callable[[], list[str]]) -> Parsed:
        """The rows of a block.

        count: how many records it has, each known to be an object by its brackets, one a line; None: not known. texts: the records.
        """
        news = self._exact.news()
        whole = self._fast.rows(block, count) if count is not None and self._fast.possible else None
        if whole is not None and not whole[1].any():
            return Parsed(whole[0], news.fields())
        records = texts()
        parts: list[_Part] = []
        waiting: Sequence[int] = range(len(records))
        if whole is not None:
            parts.append(_good(waiting, whole))
            waiting = _odd(waiting, whole[1])
        if self._fast.possible:
            waiting = self._look(records, waiting, parts)
        if waiting or not parts:
            parts.append((waiting, self._exact.rows((records[at] for at in waiting), news)))
        return Parsed(_in_order(parts), news.fields())

    def _look(self, records: list[str], waiting: Sequence[int], parts: list[_Part]) -> Sequence[int]:
        """Reads the records that fit; returns the places of the others."""
        texts = [records[at].strip(" \t\r") for at in waiting]
        fitting = np.fromiter(map(self._verified.fits, texts), dtype=np.bool_, count=len(texts))
        fits = _odd(waiting, fitting)
        if not fits:
            return waiting
        block = "\n".join([text for text, good in zip(texts, fitting, strict=True) if good]) + "\n"
        try:
            found = self._fast.rows(block.encode(), len(fits), verified=True)
        except UnicodeEncodeError:
            found = None
        if found is None:
            return waiting
        parts.append(_good(fits, found))
        return sorted([*_odd(waiting, ~fitting), *_odd(fits, found[1])])


def _good(places: Sequence[int], found: tuple[pa.Table, Mask]) -> _Part:
    rows, odd = found
    return _odd(places, ~odd), rows.filter(pa.array(~odd)) if odd.any() else rows


def _odd(places: Sequence[int], mask: Mask) -> list[int]:
    return [places[at] for at in np.flatnonzero(mask).tolist()]


def _in_order(parts: list[_Part]) -> pa.Table:
    if len(parts) == 1:
        return parts[0][1]
    places = np.concatenate([np.asarray(places, dtype=np.int64) for places, _ in parts])
    return pa.concat_tables([rows for _, rows in parts]).combine_chunks().take(pa.array(np.argsort(places)))
