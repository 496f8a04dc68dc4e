"""How declarations write numbers of bytes."""

from __future__ import annotations

import re

from sluice.errors import DeclarationError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_byte_amount(owner: str, field: str, said: int | str) -> int:
    """Returns the bytes in 500000000 or "500m" (k, m, g, t: powers of 1000). Raises DeclarationError."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", str(said).strip().lower())
    if not found:
        raise DeclarationError(f"{owner}: {field} is a number of bytes such as 500000000 or '500m', not '{said}'.")
    return int(found.group(1)) * _UNITS[found.group(2)]
