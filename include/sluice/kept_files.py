"""Reads the small JSON files of `_sluice`: the error for a damaged one names the file, its purpose and the remedy.

`sluice.durable_files` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from sluice.errors import UsageError
from sluice.locations import Location

Said = TypeVar("Said")


class KeptFileDamaged(UsageError):
    """One of Sluice's small files is truncated, or something else wrote it. Exit code 2: somebody has to repair it."""


def load_kept_object(path: Location, what: str, remedy: str) -> dict[str, Any]:
    """The JSON object in a file."""
    return load_kept_json(path, what, remedy, _require_json_object)


def load_kept_json(path: Location, what: str, remedy: str, build: Callable[[Any], Said]) -> Said:
    """The content of a file, as `build` makes it from the parsed JSON. Raises KeptFileDamaged, and FileNotFoundError if it is missing.

    what: what the file says, in the singular: "the lake's format". remedy: whole sentences. The file's content is never quoted.
    """
    content = path.read_bytes()
    try:
        return build(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KeptFileDamaged(f"{path} is damaged: in its {len(content):,} bytes is not {what}. {remedy}") from None


def _require_json_object(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise TypeError
    return said
