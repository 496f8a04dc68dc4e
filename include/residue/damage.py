"""Shared by decoders: the error for content that they cannot read, and the limit of what they hold in memory."""

from __future__ import annotations

from typing import IO

LIMIT = 1 << 28
"""The most bytes held in memory of something that cannot be read in parts: 256 MiB."""


class DamagedContent(Exception):
    """The content is not of the decoder's kind, or is incomplete. str(error): the reason, without any of the content."""


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Reads exactly so many bytes. Raises DamagedContent if there are fewer, or too many to hold."""
    if size > LIMIT:
        raise DamagedContent("a block is too large")
    data = stream.read(size)
    if len(data) < size:
        raise DamagedContent("the file is cut off")
    return data
