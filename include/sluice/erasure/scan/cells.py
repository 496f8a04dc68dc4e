"""Binary cells of tables: files of their own, such as a delivery that was compressed, are opened; what nothing knows is told."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sluice.erasure.scan import kinds
from sluice.erasure.scan.inspection import Bytes, Inspection, Offsets
from sluice.erasure.scan.texts import WIDE

LEAST = 64
"""Bytes from which on a cell that is no text has to be known: below are keys and digests, which the search over bytes sees as they are."""

_FIRST = np.zeros(256, np.bool_)
_FIRST[list(kinds.FIRST_BYTES)] = True


def look_into(data: Bytes, cells: Offsets, inspection: Inspection) -> None:
    """Open what is in the cells of a column. cells: where each begins in the data, and the end of the last."""
    if not len(data):
        return
    suspect = _FIRST[data[np.minimum(cells[:-1], len(data) - 1)]] & (np.diff(cells) > 0)
    # Most columns of bytes hold texts: only cells that cannot be text are looked at one by one.
    controls = np.flatnonzero(kinds.CONTROL[data])
    suspect[np.unique(np.searchsorted(cells, controls, side="right") - 1)] = True
    for number in np.flatnonzero(suspect):
        look_at(data[cells[number] : cells[number + 1]].tobytes(), inspection)


def look_at(content: bytes, inspection: Inspection) -> None:
    """Open one cell."""
    from sluice.erasure.scan.opening import open_bytes, opens

    head = content[: kinds.HEAD]
    kind = kinds.kind(head, "")
    if kind in WIDE and not _is_text(content, str(kind)):
        kind = None  # the first bytes of a digest, say, may look like a byte order mark
    if opens(kind):
        open_bytes(content, "", inspection, depth=1)
    elif kinds.foreign(head) or (kind not in kinds.PLAIN and len(content) >= LEAST and kinds.has_control(content)):
        inspection.unread("a binary cell that no decoder knows")


def look_at_all(contents: Iterable[bytes], inspection: Inspection) -> None:
    """Open cells that are there one by one."""
    for content in contents:
        look_at(content, inspection)


def _is_text(content: bytes, encoding: str) -> bool:
    try:
        return not kinds.has_control(content.decode(encoding).encode())
    except UnicodeError:
        return False
