"""How much is little enough to be read in this process, and to be part of a plan."""

from __future__ import annotations

MOST_BYTES_IN_PROCESS = 32_000_000
"""Up to this many bytes are read in this process, so that no Python worker has to start."""
MOST_BYTES_IN_PLAN = 1_000_000
"""Up to this many bytes of rows are part of the plan; more wait on the disk."""


def is_read_in_process(size: int) -> bool:
    """Whether files, or their text, of this many bytes together are read in this process and not by Spark's workers."""
    return size <= MOST_BYTES_IN_PROCESS


def is_part_of_plan(size: int) -> bool:
    """Whether rows of this many bytes are part of the plan."""
    return size <= MOST_BYTES_IN_PLAN
