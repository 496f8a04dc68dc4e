"""Decodes other spellings of the same bytes: resolves JSON escapes at every depth, joins base64 lines, and folds letters.

A needle covers an identifier that is escaped as a whole in one way, in the usual letter cases. But any letter may be escaped
individually or be a capital, and base64 may be broken anywhere; such cases are found in what the bytes decode to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

UNESCAPED, JOINED, FOLDED = "unescaped", "joined base64", "other letter case"
"""The decoder names for hits in decoded spellings."""
LONGEST = 26
"""The most bytes that a letter takes, escaped as JSON in JSON in JSON."""

_DEPTH = 4
"""How many levels of JSON within JSON are decoded."""
_LETTER = rb"[A-Za-z0-9+/_-]"
_STRONG = re.compile(
    rb"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[rn](?:(?<=" + _LETTER + rb"{20}\\.)|(?<=" + _LETTER + rb"{20}\\\\.))[A-Za-z0-9+/\\])"
)
"""Certain escapes, and possible breaks in base64. Without these nothing is hidden, since needles include the form that JSON writes."""
_ESCAPE = re.compile(rb"((?:\\u[0-9a-fA-F]{4})+)|\\(?:x([0-9a-fA-F]{2})|([\"'/\\])|([bfnrt]))")
_CONTROL = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_LEAST_OF_LINE = 20
"""The least number of base64 characters at the end of a line that the next line continues."""
_BLANKS = re.compile(rb"[\r\n \t]+")
_LETTERS = np.isin(np.arange(256), list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"))


class Spelling(NamedTuple):
    """What bytes decode to. level: how many levels of escapes were resolved; joined: whether lines were joined, so only base64 counts.

    folded: whether letters outside ASCII were folded, so only needles with such letters count.
    """

    level: int
    joined: bool
    data: bytes
    folded: bool = False

    @property
    def decoder(self) -> str:
        """Its name in certificates."""
        return JOINED if self.joined else FOLDED if self.folded else UNESCAPED


def find_other_spellings(data: bytes, folds: bool = False) -> Iterator[Spelling]:
    """Yields every other reading of the bytes; nothing if they have no other. folds: whether a needle has letters that must be folded."""
    levels = [data, *resolve_escape_levels(data)]
    yield from (Spelling(level, False, meant) for level, meant in enumerate(levels) if level)
    for level, meant in enumerate(levels):
        joined = join_base64_lines(meant)
        if joined is not None:
            yield Spelling(level, True, joined)
        if folds and not meant.isascii():
            yield Spelling(level, False, fold_letter_case(meant), folded=True)


def compute_known_length(spelling: Spelling, before: bytes) -> int:
    """The least length of what the earlier bytes decode to within the reading. before: the earlier bytes."""
    meant = before
    for level, resolved in enumerate(resolve_escape_levels(before), start=1):
        meant = resolved if level <= spelling.level else meant
    meant = (join_base64_lines(meant) or meant) if spelling.joined else meant
    meant = fold_letter_case(meant) if spelling.folded else meant
    return len(meant) - LONGEST


def find_spelled_positions(data: npt.NDArray[np.uint8]) -> list[int]:
    """Where something may have another spelling."""
    return [*(found.start() for found in _STRONG.finditer(data.tobytes())), *_find_base64_breaks(data)]


def resolve_escape_levels(data: bytes) -> Iterator[bytes]:
    """Yields what escaped text decodes to, and then what that decodes to if it is escaped again."""
    for _ in range(_DEPTH):
        if b"\\" not in data or not _STRONG.search(data):
            return
        data = _ESCAPE.sub(_resolve_escape, data)
        yield data


def _resolve_escape(escape: re.Match[bytes]) -> bytes:
    units, byte, itself, control = escape.groups()
    if units:
        text = bytes.fromhex(units.replace(b"\\u", b"").decode()).decode("utf-16-be", "surrogatepass")
        return text.encode("utf-8", "surrogatepass")
    return bytes([int(byte, 16)]) if byte else itself or _CONTROL[control]


def join_base64_lines(data: bytes) -> bytes | None:
    """The bytes without the breaks between base64 lines. None if there are no such breaks."""
    if b"\n" not in data and b"\r" not in data:
        return None
    kept, at = [], 0
    for start in _find_base64_breaks(np.frombuffer(data, np.uint8)):
        blanks = _BLANKS.match(data, start)
        end = blanks.end() if blanks else start
        if end < len(data) and _LETTERS[data[end]]:
            kept.append(data[at:start])
            at = end
    return b"".join([*kept, data[at:]]) if kept else None


def _find_base64_breaks(data: npt.NDArray[np.uint8]) -> list[int]:
    """Where lines end with base64 letters."""
    found = np.flatnonzero((data == ord("\n")) | (data == ord("\r")))
    found = found[found >= _LEAST_OF_LINE]
    for before in range(1, _LEAST_OF_LINE + 1):
        found = found[_LETTERS[data[found - before]]]
    return list(map(int, found))


def fold_letter_case(data: bytes) -> bytes:
    """A text in the small letters of `str.casefold`. Bytes that are no UTF-8, such as a part of a letter cut off, stay as they are."""
    return data.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def fold_cased_text(value: bytes | int) -> bytes | None:
    """The small letters of a needle. None if it has no letters outside ASCII that have a case, or is no text."""
    if isinstance(value, int) or value.isascii():
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    cased = any(not letter.isascii() and (letter.lower() != letter or letter.upper() != letter) for letter in text)
    return text.casefold().encode() if cased else None
