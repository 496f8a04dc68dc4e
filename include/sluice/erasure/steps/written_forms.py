"""How somebody may be named where nobody reads records: how an identifier may be written, in which encodings, and where fields of rows end.

A telephone number may be in groups, a MAC address in pairs, a number be a DOUBLE. A reader refuses rows that are no records. Here each is split
as well as it can be, since somebody may be named in it.

A record may be escaped, encoded in base64 or otherwise, and in other letter case; a whole file may also be compressed, damaged or in another text
encoding. The scan has decoders of its own, and shares nothing with this module.
"""

from __future__ import annotations

import base64
import codecs
import html
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from sluice.declare.ingest.file_formats import USUAL_DELIMITERS, CsvDialect
from sluice.ingest.files import decompression

_SHORTEST = 5
"""In characters."""
_SHORTEST_DOUBLE = 8
"""The same for a number of many digits as Java writes a DOUBLE: 7.0E9 is short."""
_DIGITS_WITH_EXPONENT = 8
"""From this many digits on, Java writes a DOUBLE with an exponent."""
LEAST_DIGITS = 9
"""From this many digits on, a number is not repeated by chance. The scan defines its own limit, and shares nothing with this."""
_WHOLE_NUMBER = re.compile(r"[+-]?0*([0-9]{1,19})")
_PAIRS_OF_MAC = 6
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:\-. ]?){5}[0-9A-Fa-f]{2}")
_PHONE = re.compile(r"\+?[0-9][0-9 ()/.\-]{6,}[0-9]")
_DIGITS = frozenset("0123456789")
_ADDRESS = r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"
_DATE_OR_ADDRESS = re.compile(
    rb"(?<![0-9.])(?:[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ t][0-9]{2}(?=:))?|" + _ADDRESS.encode() + rb")(?![0-9.]?[0-9])"
)
_GROUPED_DIGITS = re.compile(rb"[0-9]+(?:[ ()/.\-]{1,3}[0-9]+)+")
_GROUP_MARKS = bytes.maketrans(b"()/.-", b"     ")


def list_written_forms(value: str) -> list[str]:
    """The identifier, and, of a MAC address or a telephone number, the same with other separators or none.

    A number of twelve digits may be a MAC address, but in pairs with blanks or in fours with dots it may as well be anything else.
    """
    text = value.strip()
    if _MAC.fullmatch(text):
        bare = re.sub("[^0-9A-Fa-f]", "", text)
        pairs = [bare[2 * position : 2 * position + 2] for position in range(_PAIRS_OF_MAC)]
        grouped = ".".join(bare[start : start + 4] for start in range(0, 2 * _PAIRS_OF_MAC, 4))
        other = () if _DIGITS.issuperset(text) else (grouped, ".".join(pairs), " ".join(pairs))
        return list(dict.fromkeys((text, bare, ":".join(pairs), "-".join(pairs), *other)))
    return list(dict.fromkeys((text, keep_digits(text) if _PHONE.fullmatch(text) else text)))


def keep_digits(value: str) -> str:
    """The digits of a text."""
    return re.sub("[^0-9]", "", value)


def find_phone_digits(value: str) -> str | None:
    """The digits of what is written as a telephone number, with a + or with separators. None for an address of a machine and all else."""
    text = value.strip()
    if _DIGITS.issuperset(text) or re.fullmatch(_ADDRESS, text) or not _PHONE.fullmatch(text):
        return None
    return keep_digits(text)


def join_grouped_digits(content: bytes) -> Iterator[bytes]:
    """The digits of each number that is written in groups, and of the same without its first group: `7, 49 170-12`, `7 49 170-12`.

    Neither dates nor addresses of machines are such groups.
    """
    for found in _GROUPED_DIGITS.finditer(_DATE_OR_ADDRESS.sub(b"|", content)):
        first, _, others = found.group().translate(_GROUP_MARKS).partition(b" ")
        rest = others.replace(b" ", b"")
        yield first + rest
        yield rest


def is_short_form(value: str) -> bool:
    """Whether a value is a number or text short enough to occur often by chance."""
    text = value.strip()
    return len(text) < (LEAST_DIGITS if text.isascii() and text.isdigit() else _SHORTEST)


def list_search_forms(value: str) -> Iterator[tuple[str, bool]]:
    """How an identifier is written, and of each form whether it is short. Of a whole number, also as Java writes a DOUBLE."""
    for form in list_written_forms(value):
        yield form, is_short_form(form)
    number = _WHOLE_NUMBER.fullmatch(value.strip())
    if number:
        double = _write_java_double(number[1])
        yield double, is_short_form(number[1]) or len(double) < _SHORTEST_DOUBLE


def _write_java_double(digits: str) -> str:
    """A number of these digits as Java and Spark write a DOUBLE: 12140.0, and from ten million on 1.2345678E7."""
    if len(digits) < _DIGITS_WITH_EXPONENT:
        return f"{digits}.0"
    return f"{digits[0]}.{digits[1:].rstrip('0') or '0'}E{len(digits) - 1}"


AROUND_ELEMENTS = b" \t\r\n\"'\\"
"""What may stand around an element of an array."""


def choose_delimiters(record: bytes, dialect: CsvDialect | None) -> str:
    """The delimiters of a record: its source's, unless others are more frequent, which may be why nobody could read it."""
    if dialect is None:
        return "".join(USUAL_DELIMITERS)
    marks = [dialect.delimiter, *USUAL_DELIMITERS]
    return max(marks, key=lambda mark: record.count(mark.encode()))


def find_usual_delimiter(row: bytes) -> str:
    """The usual delimiter that the row has most of."""
    return max(USUAL_DELIMITERS, key=lambda mark: row.count(mark.encode()))


def may_be_rows(content: bytes) -> bool:
    """Whether it may be text in rows of fields; in JSON and XML a field has its name beside it."""
    return b"\0" not in content and not content.lstrip().startswith((b"{", b"[", b"<"))


def split_fields(row: bytes, delimiters: str) -> list[bytes]:
    """What stands between the delimiters of a folded row, without quotes and blanks around it. A delimiter in a quoted field is none."""
    return [field.strip(b" \"'") for field in _compile_field_pattern(delimiters).findall(row)]


@lru_cache
def _compile_field_pattern(delimiters: str) -> re.Pattern[bytes]:
    """Matches the fields of a row, each with the delimiter before it. A quote that nothing closes is a letter as any other."""
    escaped = [re.escape(one.encode()) for one in (*delimiters, "\r", "\n")]
    marks = b"[" + b"".join(escaped) + b"]" if delimiters.isascii() else b"(?:" + b"|".join(escaped) + b")"
    other = marks.replace(b"[", b"[^", 1) + b"*+" if delimiters.isascii() else b"(?:(?!" + marks + rb")[\s\S])*+"
    return re.compile(rb"(?:\A|" + marks + rb')("[^"]*+(?:""[^"]*+)*+"' + other + b"|" + other + b")")


def list_field_values(field: bytes) -> list[bytes]:
    """What a field says: its text or, of an array, each of its elements."""
    if field.startswith(b"[") and field.endswith(b"]"):
        return [element.strip(AROUND_ELEMENTS) for element in field[1:-1].split(b",")]
    return [field]


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
