"""Reads bytes in the ways in which a name may be written in them: escaped, encoded, compressed, in other letter case.

Readings of a record undo JSON escapes, doubled quotes, URL encoding, HTML entities and base64, in one line or several. A whole file may
also be compressed, damaged or in another text encoding. The scan has decoders of its own, and shares nothing with this module.
"""

from __future__ import annotations

import base64
import codecs
import html
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

from sluice.ingest.files import decompression

_DEPTH = 4
"""How many layers of escapes are undone."""
_ESCAPE = re.compile(rb"((?:\\u[0-9a-fA-F]{4})+)|\\(?:x([0-9a-fA-F]{2})|([\"'/\\])|([bfnrt]))")
_CONTROL = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_DOUBLED_QUOTE = re.compile(rb"\"\"|''")
_ENTITY = re.compile(rb"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8});")
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{8,}(?:[\r\n]+[ \t]*[A-Za-z0-9+/_-]+)*")
_BREAKS = b"\r\n \t"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_WIDE = ("utf-16-le", "utf-16-be")
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_EIGHT_BIT = ("latin-1", "cp1252")
_SIGNS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
"""By its first bytes, the suffix by which a compressed file is read."""
_PART = 1 << 12


def fold_letters(content: bytes) -> bytes:
    """The bytes with letters that differ only in case or in how Unicode composes them made equal. Bytes that are no text stay."""
    if content.isascii():
        return content.lower()
    text = content.decode("utf-8", "surrogateescape").casefold()
    # The small letter of a Turkish capital I with a dot is an i with a dot of its own.
    return unicodedata.normalize("NFKC", text).replace("i\u0307", "i").encode("utf-8", "surrogateescape")


def decode_whole_file(content: bytes, encodings: Iterable[str] = ()) -> Iterator[bytes]:
    """The bytes of a file as they are, and what they may be as UTF-8 where they are compressed or in another encoding.

    encodings: those to try besides the usual ones.
    """
    for delivered in (content, decompress_readable_part(content)):
        plain = delivered.removeprefix(codecs.BOM_UTF8)
        yield plain
        wanted = dict.fromkeys((*(_WIDE if b"\0" in plain else ()), *(() if _is_utf8(plain) else _EIGHT_BIT), *encodings))
        for encoding in wanted:
            # A name may begin at any byte of a damaged file, so units of two bytes are read from both.
            for start in (0, 1) if encoding in _WIDE else (0,):
                whole = strip_byte_order_mark(plain) if encoding in _WIDE else plain
                decoded = whole[start:].decode(encoding, "replace").encode("utf-8", "replace")
                if decoded != plain:
                    yield decoded


def strip_byte_order_mark(content: bytes) -> bytes:
    """The bytes without the mark before the first letter that names their encoding, if there is one."""
    mark = next((one for one in (codecs.BOM_UTF8, *_WIDE_MARKS) if content.startswith(one)), b"")
    return content.removeprefix(mark)


def decode_possible_texts(content: bytes) -> Iterator[bytes]:
    """The bytes as they are, and every decoding of them."""
    for text in _unescape_repeatedly(content):
        yield text
        yield from _undo_other_syntaxes(text)
        decoded = b"\n".join(_decode_base64_words(text))
        if decoded:
            yield from _unescape_repeatedly(decoded)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def decompress_readable_part(content: bytes) -> bytes:
    """What can be read of a compressed stream, damaged or not; nothing if it is none."""
    suffix = next((suffix for sign, suffix in _SIGNS.items() if content.startswith(sign)), None)
    found = bytearray()
    if suffix:
        try:
            for part in decompression.decompress_parts(suffix, io.BytesIO(content).read, _PART):
                found += part
        except decompression.DamagedStream:
            pass
    return bytes(found)


def _undo_other_syntaxes(text: bytes) -> Iterator[bytes]:
    """The text as CSV and SQL, URLs and HTML mean it, where it may be any of these."""
    if _DOUBLED_QUOTE.search(text):
        yield text.replace(b'""', b'"').replace(b"''", b"'")
    if _PERCENT.search(text):
        yield unquote_to_bytes(text)
    if b"+" in text:
        yield unquote_to_bytes(text.replace(b"+", b" "))
    if _ENTITY.search(text):
        yield _ENTITY.sub(lambda found: html.unescape(found.group().decode()).encode("utf-8", "replace"), text)


def _unescape_repeatedly(content: bytes) -> Iterator[bytes]:
    """The text as it is, then without its escapes, then without those still left, and so on."""
    yield content
    for _ in range(_DEPTH):
        if not _ESCAPE.search(content):
            return
        content = _ESCAPE.sub(_unescape_match, content)
        yield content


def _unescape_match(escape: re.Match[bytes]) -> bytes:
    units, byte, itself, control = escape.groups()
    if units:  # two of a surrogate pair make one letter
        text = bytes.fromhex(units.replace(b"\\u", b"").decode()).decode("utf-16-be", "surrogatepass")
        return text.encode("utf-8", "surrogatepass")
    return bytes([int(byte, 16)]) if byte else itself or _CONTROL[control]


def _decode_base64_words(content: bytes) -> Iterator[bytes]:
    """The contents of base64 words, with words over several lines joined. Other letters may precede the beginning of one."""
    for found in _BASE64.finditer(content):
        letters = found.group().translate(_URL_SAFE, _BREAKS)
        for start in range(4):
            whole = letters[start : len(letters) - ((len(letters) - start) % 4 == 1)]
            yield base64.b64decode(whole + b"=" * (-len(whole) % 4))
