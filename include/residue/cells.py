"""Binary cells of tables: opens those that are files themselves, such as a compressed delivery, and reports unknown ones."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from residue import kinds
from residue.inspection import Bytes, Inspection, Offsets
from residue.parts import WIDE

DIGESTS = (16, 20, 32, 64)
"""The lengths of keys and digests in bytes, which the raw search reads directly. Any other cell that is no text must be of a known kind."""
SHORT = 64
"""Below this length, a byte that texts lack shows that a cell is no text: a small message packs numbers and a name tightly."""

_FIRST = np.zeros(256, np.bool_)
_FIRST[list(kinds.FIRST_BYTES)] = True
_NO_TEXT = np.zeros(256, np.bool_)
_NO_TEXT[[code for code in range(32) if code not in b"\t\n\r"]] = True
_NO_TEXT[128:] = True
"""Bytes that make a short cell worth opening: control characters, and those that may not be UTF-8."""


def open_column_cells(data: Bytes, cells: Offsets, inspection: Inspection) -> None:
    """Opens the cells of a column. cells: the offset of each in the data, and the end of the last."""
    if not len(data):
        return
    suspect = _FIRST[data[np.minimum(cells[:-1], len(data) - 1)]] & (np.diff(cells) > 0)
    # Most binary columns hold texts, so only cells that cannot be text are examined one by one.
    controls = np.flatnonzero(kinds.CONTROL[data])
    suspect[np.unique(np.searchsorted(cells, controls, side="right") - 1)] = True
    for number in np.flatnonzero(_find_maybe_packed_cells(data, cells) & ~suspect):
        suspect[number] = _is_packed_cell(data[cells[number] : cells[number + 1]].tobytes())
    for number in np.flatnonzero(suspect):
        _open_cell(data[cells[number] : cells[number + 1]].tobytes(), inspection)


def _find_maybe_packed_cells(data: Bytes, cells: Offsets) -> npt.NDArray[np.bool_]:
    """Which cells are short and have a byte that a text may not have."""
    lengths = np.diff(cells)
    short = (lengths < SHORT) & ~np.isin(lengths, DIGESTS)
    if not short.any():
        return short
    counted = np.concatenate([[0], np.cumsum(_NO_TEXT[data])])
    return short & (counted[cells[1:]] > counted[cells[:-1]])


def _open_cell(content: bytes, inspection: Inspection) -> None:
    """Open one cell."""
    from residue.opening import is_container_kind, search_contained_bytes

    head = content[: kinds.HEAD]
    kind = kinds.detect_file_kind(head, "")
    if kind in WIDE and not _is_text_in_encoding(content, str(kind)):
        kind = None  # a digest may begin with bytes that look like a byte order mark
    if kind in kinds.PLAIN and not kinds.has_confirmed_structure(str(kind), io.BytesIO(content), None):
        kind = None
    if is_container_kind(kind):
        search_contained_bytes(content, "", inspection, depth=1)
    elif kinds.has_foreign_signature(head) or (kind not in kinds.PLAIN and _is_unknown_binary(content)):
        inspection.unread("a binary cell that no decoder knows")


def open_cells(contents: Iterable[bytes], inspection: Inspection) -> None:
    """Opens cells that are given one by one."""
    for content in contents:
        _open_cell(content, inspection)


def _is_unknown_binary(content: bytes) -> bool:
    return len(content) not in DIGESTS and (_is_packed_cell(content) or kinds.has_control_characters(content))


def _is_packed_cell(content: bytes) -> bool:
    """Whether a short cell holds something that no text does."""
    if len(content) in DIGESTS or len(content) >= SHORT:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return any(code < 32 and code not in b"\t\n\r" for code in content)


def _is_text_in_encoding(content: bytes, encoding: str) -> bool:
    try:
        return not kinds.has_control_characters(content.decode(encoding).encode())
    except UnicodeError:
        return False
