"""What decoders have in common: how they say that they cannot go on, and how much they hold in memory."""

from __future__ import annotations

from typing import IO

LIMIT = 1 << 28
"""Bytes that are held in memory at most, of what cannot be read in parts: 256 MiB."""


class DamagedContent(Exception):
    """What a decoder was given is not what it reads, or not all of it. str(error): the reason, without anything of the content."""


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes. Raises Damaged where there are fewer, or they are too many to be held."""
    if size > LIMIT:
        raise DamagedContent("a block is too large")
    data = stream.read(size)
    if len(data) < size:
        raise DamagedContent("the file is cut off")
    return data
