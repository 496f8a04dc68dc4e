"""What text a file is by how it starts, where that is not what its source says."""

from __future__ import annotations

import codecs

START = 1 << 12
"""So many bytes of a file's start tell what text it is."""

_WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


def other(start: bytes, encoding: str) -> str | None:
    """Why the file cannot be text of that encoding, or None.

    UTF-16 where bytes are declared would be taken for damaged text. Bytes where UTF-16 is declared would be taken for any text: it has NUL
    bytes at its blanks and line ends.
    """
    if codecs.lookup(encoding).name in _WIDE:
        marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return f"the file is not encoded as {encoding}" if b"\0" not in start and not marked and _is_utf8(start) else None
    found = _wide(start)
    return f"the file is encoded as {found}, the source declares {encoding}" if found else None


def _wide(start: bytes) -> str | None:
    """utf-32 or utf-16, by a byte order mark or by the place of the NUL bytes in text of a Latin script."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = start[:START]
    nuls = [sample[offset::2].count(0) for offset in (0, 1)]
    return "utf-16" if min(nuls) == 0 and max(nuls) > len(sample) // 4 else None


def _is_utf8(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True
