"""From a file's header to the names of bronze columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNFIT = re.compile(r"[^\w]", re.UNICODE)


def column_names(header: Sequence[str]) -> list[str]:
    """The header's names as a Delta table takes them; "" for a field that has none of its own.

    Blanks around a name and a byte order mark go, characters other than letters, digits and underscores become underscores.
    Nameless: empty names, and names that repeat an earlier one (letter case apart).
    """
    taken = set[str]()
    names = []
    for delivered in header:
        name = _UNFIT.sub("_", delivered.replace("\ufeff", "").strip())
        fit = "" if not name.strip("_") or name.lower() in taken else name
        taken.add(fit.lower())
        names.append(fit)
    return names


def match_table_spelling(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """The names in the letter case in which the table has them already, since Delta's names ignore case."""
    spelling = {name.lower(): name for name in known}
    return [spelling.get(name.lower(), name) for name in names]
