"""Keyed hashes of identifiers (HMAC-SHA256, equal in Python and in Spark), and stand-ins made from them for anonymous clones.

Spark has no HMAC function, so it is built from SHA-256 and the two pads (RFC 2104). The pads travel as columns of a one-row frame,
because literals would appear in plans and event logs.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.declare.lazy_spark import F
from sluice.declare.privacy.treat import Canonical
from sluice.declare.quoting import quote_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_BLOCK = 64
_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters that Python's strip() removes; Spark's trim() alone would remove only spaces."""


@dataclass(frozen=True)
class PseudonymSpec:
    """How to make a pseudonym column. identifier: the column to hash, of any type that writes each value as one text."""

    key: bytes
    domain: str
    identifier: Column
    canonical: Canonical = "text"

    def pads(self) -> tuple[bytearray, bytearray]:
        """The inner and the outer HMAC pad of the domain's key."""
        padded = _domain_key(self.key, self.domain).ljust(_BLOCK, b"\0")
        inner, outer = (bytearray(byte ^ pad for byte in padded) for pad in (0x36, 0x5C))
        return inner, outer


def compute_pseudonym(key: bytes, domain: str, identifier: str, canonical: Canonical = "text") -> str | None:
    """The pseudonym of an identifier in a domain: 64 hex digits. None if its canonical text is empty, as for blanks."""
    text = canonical_text(identifier, canonical)
    return hmac.new(_domain_key(key, domain), text.encode(), hashlib.sha256).hexdigest() if text else None


def canonical_text(identifier: str, canonical: Canonical) -> str:
    """The text of an identifier that is hashed; see `sluice.declare.treat.Hmac`."""
    if canonical == "digits":
        return re.sub("[^0-9]", "", identifier)
    if canonical == "hex":
        return re.sub("[^0-9A-Fa-f]", "", identifier).lower()
    stripped = identifier.strip(_BLANKS)
    return stripped.lower() if canonical == "lower" else stripped


def canonical_column(identifier: Column, canonical: Canonical) -> Column:
    """Does in Spark what `canonical_text` does."""
    text = identifier.cast("string")
    if canonical == "digits":
        return F.regexp_replace(text, "[^0-9]", "")
    if canonical == "hex":
        return F.lower(F.regexp_replace(text, "[^0-9A-Fa-f]", ""))
    stripped = F.btrim(text, F.lit(_BLANKS))  # trim() with two arguments logs a warning each time
    return F.lower(stripped) if canonical == "lower" else stripped


def add_pseudonym_column(frame: DataFrame, key: bytes, domain: str, identifier: Column, name: str) -> DataFrame:
    """Adds the column `name` with the pseudonym of an identifier; NULL if that is NULL or blank."""
    return add_pseudonym_columns(frame, {name: PseudonymSpec(key, domain, identifier)})


def add_pseudonym_columns(frame: DataFrame, wanted: Mapping[str, PseudonymSpec]) -> DataFrame:
    """Adds pseudonym columns by name, each replacing a column of that name."""
    from sluice.lake import table_creation  # loads Spark, without which an erasure can be requested

    named = {name: (f"_inner_{number}", f"_outer_{number}") for number, name in enumerate(wanted)}
    pads = [pad for hashed in wanted.values() for pad in hashed.pads()]
    names = [column for pair in named.values() for column in pair]
    one_row = table_creation.make_inline_frame(
        frame.sparkSession, [tuple(bytes(pad) for pad in pads)], ", ".join(f"{n} BINARY" for n in names)
    )
    columns = {name: _hmac_column(hashed, *named[name]) for name, hashed in wanted.items()}
    return frame.crossJoin(F.broadcast(one_row)).withColumns(columns).drop(*names)


def _hmac_column(hashed: PseudonymSpec, inner: str, outer: str) -> Column:
    text = canonical_column(hashed.identifier, hashed.canonical)
    first = F.unhex(F.sha2(F.concat(F.col(inner), text.cast("binary")), 256))
    return F.when(F.length(text) > 0, F.sha2(F.concat(F.col(outer), first), 256))


def _domain_key(key: bytes, domain: str) -> bytes:
    return hmac.new(key, domain.encode(), hashlib.sha256).digest()


def key_check_values(keys: Mapping[str, bytes]) -> Sequence[str]:
    """For each key name, 8 hex digits that identify the key and reveal nothing else of it."""
    return [f"{name}={_domain_key(key, 'sluice: the same key again?').hex()[:8]}" for name, key in sorted(keys.items())]


TYPES = ("string", "integer", "long")
"""The types that have stand-ins."""
_DOMAIN = "sluice: a stand-in"
_WHOLE_NUMBER = "^(0|-?[1-9][0-9]{0,17})$"
_DIGITS = 15
"""Hex digits of a numeric stand-in: 60 bits, so that two values among a hundred million hardly ever get the same."""


def replace_with_stand_ins(frame: DataFrame, key: bytes, columns: Sequence[str]) -> DataFrame:
    """Puts stand-ins into these columns. A text that is a whole number stays one, so that casts and joins keep working.

    An INT has 31 bits, so among a hundred thousand values a few pairs get the same stand-in; see `collisions`.
    """
    if not columns:
        return frame
    temporary = {name: f"_stand_in_{number}" for number, name in enumerate(columns)}
    hashed = add_pseudonym_columns(
        frame, {made: PseudonymSpec(key, _DOMAIN, _exact_text(name)) for name, made in temporary.items()}
    )
    kinds = {field.name: field.dataType for field in frame.schema}
    made = {name: _stand_in_of_type(F.col(made), quote_column(name), kinds[name]) for name, made in temporary.items()}
    return hashed.select(*(made.get(name, quote_column(name)).alias(name) for name in frame.columns))


def _exact_text(name: str) -> Column:
    """A text that is different for each value, even for values that differ only in blanks."""
    return F.concat(F.lit("x"), F.hex(F.encode(quote_column(name).cast("string"), "UTF-8")))


def _stand_in_of_type(digits: Column, value: Column, kind: DataType) -> Column:
    number = F.conv(F.substring(digits, 1, _DIGITS), 16, 10).cast("bigint")
    if kind.typeName() == "long":
        return number
    if kind.typeName() == "integer":
        return F.pmod(number, F.lit(2**31 - 1).cast("bigint")).cast("int")
    return F.when(value.rlike(_WHOLE_NUMBER), number.cast("string")).otherwise(F.substring(digits, 1, 32))
