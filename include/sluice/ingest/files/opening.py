"""From a delivered file to its bytes: decompressed, as UTF-8, within the limits of its source. Never more than a part is held.

Files that end in .gz, .zst or .bz2 are decompressed. What cannot be read raises `Unreadable`; its text is the reason that the whole
file goes to quarantine with, and never holds any of the file's content.
"""

from __future__ import annotations

import codecs
import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sluice.declare.ingest.source import Source
from sluice.ingest.files import decompression, encodings

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LINK = "the file is a symbolic link; links are not followed"
NO_FILE = "it is no regular file; nothing else is read"
NUL = "the file holds NUL bytes; it is no text"
LONGEST = 256 << 20
"""The most bytes that one line, or one CSV row with the line ends in it, may have."""

_CHUNK = 1 << 20
_BOM = codecs.BOM_UTF8


class Unreadable(Exception):
    """A file that cannot be read as its source says. str(error): the reason, without content."""


def chunks(source: Source, path: Path, seen: Callable[[bytes], object] | None = None) -> Iterator[bytes]:
    """The file's bytes, decompressed, some 1 MiB at a time.

    seen: is given each part of the file as it lies on the disk, to hash it. Raises Unreadable, also after some parts, and OSError.
    """
    with opened(path) as file:
        size, total = os.fstat(file.fileno()).st_size, 0

        def read(count: int) -> bytes:
            part = file.read(count)
            if seen is not None:
                seen(part)
            return part

        try:
            for part in decompression.parts(path.suffix.lower(), read, _CHUNK):
                total += len(part)
                check_limits(source, size, total)
                yield part
        except decompression.Damaged as damage:
            raise Unreadable(str(damage)) from None


def pieces(source: Source, path: Path, seen: Callable[[bytes], object] | None = None) -> Iterator[bytes]:
    """The text of the file as UTF-8 without a byte order mark, some 1 MiB at a time, cut anywhere. Raises as `chunks`."""
    decoder = codecs.getincrementaldecoder(source.encoding)()
    plain = codecs.lookup(source.encoding).name in ("utf-8", "utf-8-sig", "ascii")
    pending, first = False, True
    try:
        for part in _with_start(chunks(source, path, seen)):
            if first and (other := encodings.other(part, source.encoding)):
                raise Unreadable(other)
            if plain:
                if pending or not part.isascii():
                    decoder.decode(part)
                    pending = bool(decoder.getstate()[0])
                text = part
            else:
                text = decoder.decode(part).encode()
            if b"\0" in text:
                raise Unreadable(NUL)
            text = text.removeprefix(_BOM) if first and text else text
            first = first and not text
            if text:
                yield text
        decoder.decode(b"", final=True)
    except UnicodeError:
        raise Unreadable(f"the file is not encoded as {source.encoding}") from None


def blocks(source: Source, path: Path) -> Iterator[bytes]:
    """The text of the file as UTF-8 in blocks of whole lines, about 1 MiB each; the last line may have no line end.

    A line that is longer is a block of its own. Raises as `chunks`, also where a line has more than `LONGEST` bytes.
    """
    return whole_lines(pieces(source, path))


def whole_lines(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, cut after line ends. Raises Unreadable where a line has more than `LONGEST` bytes."""
    rest: list[bytes] = []
    waiting = 0
    for text, last in and_last(texts):
        end = len(text) if last else text.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, text[:end]])
            rest, waiting = [], 0
        if end < len(text):
            rest.append(text[end:])
            waiting += len(rest[-1])
        if waiting > LONGEST:
            raise Unreadable(too_long())


def and_last(texts: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each with whether it is the last."""
    before = next(texts, None)
    for text in texts:
        if before is not None:
            yield before, False
        before = text
    if before is not None:
        yield before, True


def too_long() -> str:
    """The reason for a line that is too long."""
    return f"a line of the file has more than {LONGEST} bytes"


def decompressed(path: Path, source: Source) -> BinaryIO:
    """The file's bytes, decompressed, as a file to be read once from its start. Reading raises as `chunks`."""
    return io.BufferedReader(_Stream(chunks(source, path)), _CHUNK)


class _Stream(io.RawIOBase):
    """Parts, as a file."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: WriteableBuffer) -> int:
        room = memoryview(target).cast("B")
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def readall(self) -> bytes:
        rest, self._rest = bytes(self._rest), memoryview(b"")
        return b"".join([rest, *self._parts])


def opened(path: Path) -> BinaryIO:
    """The file as it lies there. Raises Unreadable where it is a link or no file, and OSError."""
    if path.is_symlink():
        raise Unreadable(LINK)
    # Not to wait for a writer, should it be a pipe; and no link that has taken the file's place since is followed.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable(NO_FILE)
    return os.fdopen(descriptor, "rb", buffering=0)


def check_limits(source: Source, size: int, total: int) -> None:
    """Raises Unreadable. size: of the file on the disk; total: of what has come out of it so far."""
    if total > int(source.most_bytes):
        raise Unreadable(f"the file has more than {source.most_bytes} bytes; most_bytes of its source allows no more")
    if total > size * source.most_growth:
        raise Unreadable(
            f"the file grows more than {source.most_growth} times when it is decompressed; most_growth of its source allows no more"
        )


def _with_start(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes; the first part has enough of them to tell what text it is, if there are."""
    start = b""
    for part in parts:
        start += part
        if len(start) >= encodings.START:
            break
    if start:
        yield start
    yield from parts
