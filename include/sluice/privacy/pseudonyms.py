"""Keyed hashes of identifiers: HMAC-SHA256, the same in Python and in Spark.

Spark has no HMAC function, so it is built from SHA-256 and the two pads (RFC 2104). The pads travel as columns of a one-row
frame: as literals they would stand in plans and event logs.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from sluice.declare.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BLOCK = 64


def pseudonym(key: bytes, domain: str, identifier: str) -> str:
    """The pseudonym of an identifier in a domain: 64 hex digits. Blanks around the identifier do not count."""
    return hmac.new(_domain_key(key, domain), identifier.strip().encode(), hashlib.sha256).hexdigest()


def with_pseudonym(frame: DataFrame, key: bytes, domain: str, identifier: Column, name: str) -> DataFrame:
    """The frame with one more column, `name`: the pseudonym of an identifier, NULL where that is NULL."""
    padded = _domain_key(key, domain).ljust(_BLOCK, b"\0")
    inner, outer = (bytearray(byte ^ pad for byte in padded) for pad in (0x36, 0x5C))
    pads = frame.sparkSession.createDataFrame([(inner, outer)], "_inner BINARY, _outer BINARY")
    text = F.trim(identifier.cast("string")).cast("binary")
    first = F.unhex(F.sha2(F.concat(F.col("_inner"), text), 256))
    hashed = F.sha2(F.concat(F.col("_outer"), first), 256)
    return frame.crossJoin(F.broadcast(pads)).withColumn(name, hashed).drop("_inner", "_outer")


def _domain_key(key: bytes, domain: str) -> bytes:
    return hmac.new(key, domain.encode(), hashlib.sha256).digest()
