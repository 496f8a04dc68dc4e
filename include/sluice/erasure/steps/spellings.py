"""How else a record may write what it says: letters escaped as JSON does it, and base64, in one line or in several.

The scan has readings of its own, and shares nothing with these.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

_DEPTH = 4
"""How often a text is taken for one within another."""
_ESCAPE = re.compile(rb"((?:\\u[0-9a-fA-F]{4})+)|\\(?:x([0-9a-fA-F]{2})|([\"'/\\])|([bfnrt]))")
_CONTROL = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{8,}(?:[\r\n]+[ \t]*[A-Za-z0-9+/_-]+)*")
_BREAKS = b"\r\n \t"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def decode_possible_texts(content: bytes) -> Iterator[bytes]:
    """The bytes as they are, and all that they are found to mean."""
    for text in _unescape_repeatedly(content):
        yield text
        decoded = b"\n".join(_decode_base64_words(text))
        if decoded:
            yield from _unescape_repeatedly(decoded)


def _unescape_repeatedly(content: bytes) -> Iterator[bytes]:
    """The text as it is, without its escapes, without those that are left then."""
    yield content
    for _ in range(_DEPTH):
        if not _ESCAPE.search(content):
            return
        content = _ESCAPE.sub(_unescape_match, content)
        yield content


def _unescape_match(escape: re.Match[bytes]) -> bytes:
    units, byte, itself, control = escape.groups()
    if units:  # two of a pair are one letter
        text = bytes.fromhex(units.replace(b"\\u", b"").decode()).decode("utf-16-be", "surrogatepass")
        return text.encode("utf-8", "surrogatepass")
    return bytes([int(byte, 16)]) if byte else itself or _CONTROL[control]


def _decode_base64_words(content: bytes) -> Iterator[bytes]:
    """What words of the letters of base64 hold, those in several lines put together. Where one begins, letters of something else may stand."""
    for found in _BASE64.finditer(content):
        letters = found.group().translate(_URL_SAFE, _BREAKS)
        for start in range(4):
            whole = letters[start : len(letters) - ((len(letters) - start) % 4 == 1)]
            yield base64.b64decode(whole + b"=" * (-len(whole) % 4))
