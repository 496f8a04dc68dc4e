"""A scan's result as rows that may be shown: places and counts, and no name that is itself a hit."""

from __future__ import annotations

from collections import Counter
from typing import Any

from residue.result import ScanResult

FOUND_COLUMNS = ("root", "file", "decoder", "column", "times")
UNREAD_COLUMNS = ("root", "file", "reason")


def count_hits_by_place(result: ScanResult) -> list[dict[str, Any]]:
    """How often something of the people was found, by root, file, decoder and column."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for hit in result.of_person():
        counted[hit.root, hide_path_of_hit(result, hit.root, hit.path), hit.decoder, hit.column] += hit.times
    return [dict(zip(FOUND_COLUMNS, (*place, times), strict=True)) for place, times in sorted(counted.items())]


def list_unread_files(result: ScanResult) -> list[dict[str, Any]]:
    """What no decoder opens."""
    return [
        {"root": one.root, "file": hide_path_of_hit(result, one.root, one.path), "reason": one.reason}
        for one in sorted(result.unread, key=lambda one: (one.root, one.reason))
    ]


def hide_path_of_hit(result: ScanResult, root: str, path: str) -> str:
    """A path, to be shown. A name that is itself a hit is not."""
    named = (hit.path for hit in result.hits if hit.decoder == "names" and hit.root == root)
    return "(its name is a hit)" if any(path == one or path.startswith(f"{one}/") for one in named) else path
