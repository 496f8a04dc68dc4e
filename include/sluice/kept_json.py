"""The small JSON files of `_sluice`: read in one place, so that a damaged one is named, with what it says and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sluice.errors import UsageError

Said = TypeVar("Said")


class KeptFileDamaged(UsageError):
    """A small file of Sluice's own is cut, or was written by something else. Exit code 2: only a hand can put it right."""


def load_kept_request(path: Path, build: Callable[[Any], Said]) -> Said:
    """What the file of a request to erase somebody says, as `build` makes it."""
    remedy = "Put a copy of it back. Without one, move the file away and ask for the erasure again: sluice erase request"
    return load_kept_json(path, "a request to erase somebody", remedy, build)


def load_kept_object(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """What a file says that holds a JSON object."""
    return load_kept_json(path, what, remedy, _require_json_object)


def load_kept_json(path: Path, what: str, remedy: str, build: Callable[[Any], Said]) -> Said:
    """What a file says, as `build` makes it of the parsed JSON. Raises KeptFileDamaged; FileNotFoundError as any reading does.

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
