"""Why a flow cannot begin: what it reads does not exist. A run, its plan and the report of what waits find it and say it alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sluice import delta_log

SOURCE_IS_EMPTY = "its source has no record yet"
"""Said of a silver table whose bronze table has no record, and so no columns to read yet."""


def list_missing_inputs(reads: Iterable[str], find_path: Callable[[str], str]) -> list[str]:
    """Lists the inputs that do not exist yet, in the order in which they are declared. find_path: gives the path of a table by its name."""
    return [name for name in reads if not delta_log.is_delta_table(find_path(name))]


def describe_missing_inputs(missing: Sequence[str]) -> str:
    """Returns what a flow waits for to begin. missing: at least one."""
    return f"its input '{missing[0]}' has no row yet"
