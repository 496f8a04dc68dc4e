"""Builds the needles for an identifier: its forms in text, its encodings, its unkeyed hashes, its number.

Forms too long to occur by chance are searched for in every byte. Shorter ones (a member's number 12140) are searched for only in the
columns of their domain, but their hashes, which are long again, everywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import re
import string
import struct
import unicodedata
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from residue.result import Needle

LEAST = 8
"""The length in characters, or bytes of an encoding, from which a form is searched for everywhere."""
LEAST_DIGITS = 9
"""The same for digits alone: nine given digits occur by chance once in a billion positions."""
TIMED = "in its time"
"""The kind of needles that are searched for in rows with a time."""
JAVA_DOUBLE = "java double"
"""The kind of a number as Spark and Java write it with a fraction: an additional form, which may be short."""
ENCODED = frozenset({"base64", "hex", "md5", "sha1", "sha256"})
"""The kinds of needles that consist of base64 letters, which may be broken into lines."""
STATISTICS = 32
"""How many characters of a text Delta's statistics keep."""

_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:\-. ]?){5}[0-9A-Fa-f]{2}")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32}")
_PHONE = re.compile(r"\+?[0-9][0-9 ()/.\-]{6,}[0-9]")
_DOTTED_CAPITAL, _DOTTED_SMALL = "\u0130", "i\u0307"
_ALIGNMENTS = 3
_BITS = 6
_ALPHABET = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_EIGHT_BIT = ("latin-1", "cp1252")
_INT64 = range(-(2**63), 2**63)
_JAVA_EXPONENT = 8
"""From this many digits on, Java writes a DOUBLE with an exponent."""


def build_needles(
    identifiers: Iterable[tuple[str, str]],
    columns_of_domain: Mapping[str, Iterable[str]] | None = None,
    encodings: Iterable[str] = (),
) -> list[Needle]:
    """Builds the needles of identifiers given as (domain, value). columns_of_domain: further columns that hold a domain's identifiers.

    encodings: text encodings to expect besides the usual ones. A short value of a domain without columns is searched for in a column
    with the domain's own name.
    """
    columns = {domain: frozenset(names) for domain, names in (columns_of_domain or {}).items()}
    others = tuple(dict.fromkeys((*_EIGHT_BIT, *encodings)))
    found: dict[tuple[object, ...], Needle] = {}
    for domain, value in identifiers:
        for needle in _build_identifier_needles(domain, value, columns.get(domain) or frozenset({domain}), others):
            plain: bytes | int = needle.value.lower() if needle.fold and isinstance(needle.value, bytes) else needle.value
            # The plainest form comes first. The same base64 characters are different needles if the bytes beside them must
            # differ.
            found.setdefault((plain, needle.columns, needle.before, needle.after), needle)
    return list(found.values())


def build_timed_needle(domain: str, value: str, times: Iterable[tuple[str | None, str | None]]) -> Needle:
    """Builds the needle of an identifier that was the person's only at these times (ISO 8601, from and until)."""
    spans = tuple((_parse_epoch_microseconds(since), _parse_epoch_microseconds(until)) for since, until in times)
    return Needle(domain, TIMED, value.strip().encode(), times=spans)


def _parse_epoch_microseconds(text: str | None) -> int | None:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000) if text else None


def _build_identifier_needles(domain: str, value: str, columns: frozenset[str], encodings: Sequence[str]) -> Iterator[Needle]:
    forms = list(_list_text_forms(value))
    for kind, text in forms:
        yield from _build_text_needles(domain, kind, text, columns, encodings)
    for text in _list_dotted_forms(value):
        if _is_distinctive_text(text):
            yield from (Needle(domain, "dotted i", one.encode(), fold=True) for one in (text, json.dumps(text)[1:-1]))
            yield from (Needle(domain, "dotted i", text.encode(encoding), fold=True) for encoding in ("utf-16-le", "utf-16-be"))
        else:
            yield Needle(domain, "dotted i", text.encode(), columns, fold=True)
    for _, text in forms:
        if _is_distinctive_text(text):
            for kind, data in _encode_wide_and_hex(text):
                yield Needle(domain, kind, data, fold=True)
            for part in _list_base64_parts(text.encode()):
                if len(part.data) >= LEAST:
                    yield Needle(domain, "base64", part.data, before=part.before, after=part.after)
        yield from _build_hash_needles(domain, text)
    yield from _build_number_needles(domain, value.strip(), columns)
    if _UUID.fullmatch(value.strip()):
        yield from _build_uuid_needles(domain, uuid.UUID(value.strip()))


def _list_text_forms(value: str) -> Iterator[tuple[str, str]]:
    """The texts that stand for the same identifier, each once."""
    trimmed = value.strip()
    wide = [("raw", value), ("trimmed", trimmed), ("folded", trimmed.casefold()), ("upper", trimmed.upper())]
    wide += [(form.lower(), unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC") for _, text in tuple(wide[1:3])]
    if _MAC.fullmatch(trimmed):
        bare = re.sub("[^0-9A-Fa-f]", "", trimmed)
        pairs = [bare[at : at + 2] for at in range(0, 12, 2)]
        wide += [("hex digits", bare), ("hex digits", bare.lower()), ("hex digits", bare.upper())]
        wide += [("other separators", mark.join(pairs)) for mark in ":-"]
    elif _UUID.fullmatch(trimmed):
        whole = uuid.UUID(trimmed)
        wide += [("hex digits", whole.hex), ("other separators", str(whole))]
    elif _PHONE.fullmatch(trimmed):
        wide.append(("digits", re.sub("[^0-9]", "", trimmed)))
    seen: set[str] = set()
    for kind, text in wide:
        if text and text not in seen:
            seen.add(text)
            yield kind, text


def _list_dotted_forms(value: str) -> list[str]:
    """The text as Turkish writes it in capitals, with a dot above the I, and as other rules make small letters of that (`i̇`).

    Letters are compared byte by byte, so that such an I is none of an i. A capital may begin a word, or all letters are capitals.
    """
    plain = value.strip().replace(_DOTTED_CAPITAL, "i").replace(_DOTTED_SMALL, "i")
    beginning = re.sub(r"\b[iI]", _DOTTED_CAPITAL, plain)
    throughout = re.sub("[iI]", _DOTTED_CAPITAL, plain)
    small = [text.replace(_DOTTED_CAPITAL, _DOTTED_SMALL) for text in (beginning, throughout)]
    own = [plain] if plain != value.strip() else []
    return list(dict.fromkeys(text for text in (*own, beginning, throughout, *small) if text not in (value.strip(), "")))


def _is_distinctive_text(text: str) -> bool:
    """Whether a text is too long to occur by chance."""
    return len(text) >= (LEAST_DIGITS if text.isdecimal() else LEAST)


def _build_text_needles(domain: str, kind: str, text: str, columns: frozenset[str], encodings: Sequence[str]) -> Iterator[Needle]:
    """A form as it appears in text, and as other syntaxes write it."""
    data, whole = text.encode(), text.isdecimal()
    if not _is_distinctive_text(text):
        yield Needle(domain, kind, data, columns, fold=True, whole=whole)
        return
    yield Needle(domain, kind, data, fold=True, whole=whole)
    if len(text) > STATISTICS:
        yield Needle(domain, "prefix", text[:STATISTICS].encode(), fold=True)
    once, plain = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    slashes = once.replace("/", "\\/")
    written = {
        "url": [quote(text, safe=""), quote_plus(text), quote(text), quote(text, safe="!'()*")],
        "json": [once, plain, slashes, *(json.dumps(one)[1:-1] for one in (once, plain, slashes))],
        "html": [html.escape(text), html.escape(text, quote=False), *_list_apostrophe_entities(text)],
        "quoted": [text.replace('"', '""'), text.replace("'", "''"), text.replace("'", "\\'")],
    }
    yield from (Needle(domain, how, one.encode(), fold=True) for how, ones in written.items() for one in ones if one != text)
    for encoding in encodings:
        try:
            yield Needle(domain, "8-bit", text.encode(encoding), fold=True)
        except UnicodeEncodeError:
            continue


def _list_apostrophe_entities(text: str) -> Iterator[str]:
    """The text with each entity that HTML has for an apostrophe, besides the one of `html.escape`; other marks escaped or not."""
    for entity in ("&#39;", "&#039;", "&apos;"):
        yield html.escape(text, quote=False).replace("'", entity)
        yield html.escape(text).replace("&#x27;", entity)


def _encode_wide_and_hex(text: str) -> Iterator[tuple[str, bytes]]:
    data = text.encode()
    yield from (("utf-16", text.encode(encoding)) for encoding in ("utf-16-le", "utf-16-be"))
    yield "hex", data.hex().encode()


class _Base64Part(NamedTuple):
    """Base64 characters that depend only on the data, and the characters beside them that may hold the data's first and last bits."""

    data: bytes
    before: bytes
    after: bytes


def _list_base64_parts(data: bytes) -> Iterator[_Base64Part]:
    """The base64 characters that appear wherever the data are within what was encoded.

    The characters at both ends also hold bits of the adjacent data. Without the data's bits in them, 7000000001 would equal 7000000000.
    """
    for before in range(_ALIGNMENTS):
        first, end = before * 8, (before + len(data)) * 8
        bits = "".join(f"{byte:08b}" for byte in bytes(before) + data)
        start, stop = -(-first // _BITS), end // _BITS
        part = base64.b64encode(bytes(before) + data)[start:stop]
        edges = (
            _find_base64_characters(r".." * (first % _BITS // 2) + bits[first : start * _BITS]),
            _find_base64_characters(bits[stop * _BITS : end]),
        )
        for one in dict.fromkeys((part, part.translate(_URL_SAFE))):
            yield _Base64Part(one, *edges)


def _find_base64_characters(bits: str) -> bytes:
    """The base64 characters of either alphabet that match these bits (`.` for any); none if there are no bits."""
    if not bits:
        return b""
    found = bytes(char for number, char in enumerate(_ALPHABET) if re.match(bits, f"{number:06b}"))
    return bytes(sorted({*found, *found.translate(_URL_SAFE)}))


def _build_hash_needles(domain: str, text: str) -> Iterator[Needle]:
    """Unkeyed hashes: whoever can guess the value can recognise it by them."""
    for algorithm in ("md5", "sha1", "sha256"):
        digest = hashlib.new(algorithm, text.encode(), usedforsecurity=False).digest()
        yield Needle(domain, algorithm, digest.hex().encode(), fold=True)
        yield Needle(domain, algorithm, digest)
        yield from (Needle(domain, algorithm, part.data) for part in itertools.islice(_list_base64_parts(digest), 2))


def _build_number_needles(domain: str, text: str, columns: frozenset[str]) -> Iterator[Needle]:
    """An identifier as a number, to be compared with the numbers of tables, and as the bytes of state files."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) not in _INT64:
        return
    number, everywhere = int(text), _is_distinctive_text(text.lstrip("+-0"))
    yield Needle(domain, "number", number, None if everywhere else columns)
    if not everywhere:
        yield Needle(domain, JAVA_DOUBLE, _write_java_double(number).encode(), columns)
        return
    for order in "<>":
        yield Needle(domain, "int64", struct.pack(f"{order}q", number))
        yield Needle(domain, "float64", struct.pack(f"{order}d", number))
    java = _write_java_double(number)
    # A round number is short in this form (7.0E9), so many others match it by chance.
    yield Needle(domain, JAVA_DOUBLE, java.encode(), None if len(java) >= LEAST else columns, whole=True)


def _build_uuid_needles(domain: str, whole: uuid.UUID) -> Iterator[Needle]:
    """A UUID as the 16 bytes of a binary column, in both orders of bytes, and their base64."""
    for data in (whole.bytes, whole.bytes_le):
        yield Needle(domain, "uuid", data)
        for part in _list_base64_parts(data):
            yield Needle(domain, "base64", part.data, before=part.before, after=part.after)


def _write_java_double(number: int) -> str:
    """A whole number as Spark and Java write it where it is a DOUBLE: 12140.0, and from ten million on 1.2345678E7. Without its sign."""
    digits = str(abs(number))
    return f"{digits}.0" if len(digits) < _JAVA_EXPONENT else f"{digits[0]}.{digits[1:].rstrip('0') or '0'}E{len(digits) - 1}"
