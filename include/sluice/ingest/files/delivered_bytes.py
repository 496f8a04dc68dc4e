"""Reads a delivered file's bytes: decompressed, as UTF-8, within the limits of its source. Never holds more than a part.

Files that end in .gz, .zst or .bz2 are decompressed. A file that cannot be read raises `UnreadableFile`; its text is the reason with which
the whole file goes to quarantine, and never holds any of the file's content.

It also detects, by how a file starts, that its encoding is not what its source says.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from sluice.declare.ingest.source import Source
from sluice.ingest.files import decompression
from sluice.locations import Location
from sluice.stores.store_location import StoreLocation

LINK = "the file is a symbolic link; links are not followed"
NO_FILE = "it is no regular file; nothing else is read"
NUL = "the file holds NUL bytes; it is no text"
LONGEST = 256 << 20
"""The most bytes that a line, or a CSV row including its line ends, may have."""

_CHUNK = 1 << 20
_RANGE = 8 << 20
"""How many bytes of an object a request asks for."""
_BOM = codecs.BOM_UTF8
_PLAIN = ("utf-8", "utf-8-sig", "ascii")
"""The encodings whose bytes are used as they are."""


class UnreadableFile(Exception):
    """A file that cannot be read as its source says. str(error): the reason, without content."""


def read_file_chunks(source: Source, path: Location, seen: Callable[[bytes], object] | None = None) -> Iterator[bytes]:
    """Yields the file's bytes, decompressed, about 1 MiB at a time.

    seen: is called with each part of the file as it lies on the disk, to hash it. Raises UnreadableFile, possibly after some parts, and OSError.
    """
    with open_regular_file(path) as file:
        size, total = measure_open_file(file), 0

        def read(count: int) -> bytes:
            part = file.read(count)
            if seen is not None:
                seen(part)
            return part

        try:
            for part in decompression.decompress_parts(path.suffix.lower(), read, _CHUNK):
                total += len(part)
                check_size_limits(source, size, total)
                yield part
        except decompression.DamagedStream as damage:
            raise UnreadableFile(str(damage)) from None


def read_text_pieces(source: Source, path: Location, seen: Callable[[bytes], object] | None = None) -> Iterator[bytes]:
    """Yields the file's text as UTF-8 without a byte order mark, about 1 MiB at a time, cut anywhere. Raises what `read_file_chunks` raises."""
    decoder = codecs.getincrementaldecoder(source.encoding)()
    plain = codecs.lookup(source.encoding).name in _PLAIN
    pending, first = False, True
    try:
        for part in _gather_text_start(read_file_chunks(source, path, seen)):
            if first and (other := encoding_mismatch_reason(part, source.encoding)):
                raise UnreadableFile(other)
            if plain:
                if pending or not part.isascii():
                    decoder.decode(part)
                    pending = bool(decoder.getstate()[0])
                text = part
            else:
                text = decoder.decode(part).encode()
            if b"\0" in text:
                raise UnreadableFile(NUL)
            text = text.removeprefix(_BOM) if first and text else text
            first = first and not text
            if text:
                yield text
        if (rest := decoder.decode(b"", final=True)) and not plain:  # UTF-7 holds back what it may have to go on with
            yield rest.encode()
    except UnicodeError:
        raise UnreadableFile(f"the file is not encoded as {source.encoding}") from None


@dataclass(frozen=True)
class FileSpan:
    """The part of an uncompressed file that begins at `start` or later and before `end`, in bytes. None: the file's end."""

    start: int
    end: int | None


PART_BYTES = 32_000_000
"""A larger file is read in parts of about this many bytes of text at most."""


def divide_file(on_disk: int, text_bytes: int) -> list[int]:
    """Returns where the parts of a file begin, the first at 0, as if it could be cut anywhere. on_disk, text_bytes: bytes of file and text."""
    parts = max(1, -(-text_bytes // PART_BYTES))
    return [on_disk * part // parts for part in range(parts)]


def is_cut_anywhere(source: Source, path: Location) -> bool:
    """Whether every line end in the file's bytes ends a line of its text, whatever comes before it."""
    return path.suffix.lower() not in decompression.SUFFIXES and codecs.lookup(source.encoding).name in _PLAIN


def read_line_blocks(source: Source, path: Location, span: FileSpan | None = None) -> Iterator[bytes]:
    """Yields the file's text as UTF-8 in blocks of whole lines, about 1 MiB each; the last line may have no line end.

    A longer line is a block of its own. span: the lines to read of a file that `is_cut_anywhere`. Raises what `read_file_chunks` raises, also if
    a line has more than `LONGEST` bytes.
    """
    return cut_at_line_ends(read_text_pieces(source, path) if span is None else read_span_pieces(source, path, span))


def read_span_pieces(source: Source, path: Location, span: FileSpan) -> Iterator[bytes]:
    """Does what `read_text_pieces` does for the lines of a span of a file that `is_cut_anywhere`."""
    decoder = codecs.getincrementaldecoder(source.encoding)()
    with open_regular_file(path) as file:
        at, stop = (_find_line_start(file, position) for position in (span.start, span.end))
        first = at == 0
        file.seek(at)
        try:
            while at < stop and (part := file.read(min(_CHUNK, stop - at))):
                at += len(part)
                decoder.decode(part)
                if b"\0" in part:
                    raise UnreadableFile(NUL)
                yield part.removeprefix(_BOM) if first else part
                first = False
            decoder.decode(b"", final=True)
        except UnicodeError:
            raise UnreadableFile(f"the file is not encoded as {source.encoding}") from None


def _find_line_start(file: BinaryIO, position: int | None) -> int:
    """Returns where the first line begins at a position or after it, or the file's size if none does."""
    if position == 0:
        return 0
    size = measure_open_file(file)
    if position is None or position > size:
        return size
    at = file.seek(position - 1)
    while part := file.read(_CHUNK):
        end = part.find(b"\n")
        if end >= 0:
            return at + end + 1
        at += len(part)
    return size


def cut_at_line_ends(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the same bytes, cut after line ends. Raises UnreadableFile if a line has more than `LONGEST` bytes."""
    rest: list[bytes] = []
    waiting = 0
    for text, last in mark_last_text(texts):
        end = len(text) if last else text.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, text[:end]])
            rest, waiting = [], 0
        if end < len(text):
            rest.append(text[end:])
            waiting += len(rest[-1])
        if waiting > LONGEST:
            raise UnreadableFile(long_line_reason())


def mark_last_text(texts: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yields each piece with whether it is the last."""
    before = next(texts, None)
    for text in texts:
        if before is not None:
            yield before, False
        before = text
    if before is not None:
        yield before, True


def long_line_reason() -> str:
    """Returns the reason for refusing a line that is too long."""
    return f"a line of the file has more than {LONGEST} bytes"


def open_regular_file(path: Location) -> BinaryIO:
    """Opens the file as it was delivered. Raises UnreadableFile if it is a link or not a file, and OSError."""
    if isinstance(path, StoreLocation):
        return path.open_ranges(_RANGE)
    if path.is_symlink():
        raise UnreadableFile(LINK)
    # Does not wait for a writer if it is a pipe, and follows no link that has replaced the file since.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFile(NO_FILE)
    return os.fdopen(descriptor, "rb", buffering=0)


def measure_open_file(file: BinaryIO) -> int:
    """Returns the size in bytes of a file that is at its start. It still is then."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def check_size_limits(source: Source, size: int, total: int) -> None:
    """Raises UnreadableFile if a limit is exceeded. size: bytes of the file on the disk. total: bytes that it has decompressed to so far."""
    if total > int(source.most_bytes):
        raise UnreadableFile(f"the file has more than {source.most_bytes} bytes; most_bytes of its source allows no more")
    if total > size * source.most_growth:
        raise UnreadableFile(
            f"the file grows more than {source.most_growth} times when it is decompressed; most_growth of its source allows no more"
        )


def _gather_text_start(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the same bytes. The first part has enough of them, if there are, to tell the encoding."""
    start = b""
    for part in parts:
        start += part
        if len(start) >= START:
            break
    if start:
        yield start
    yield from parts


START = 1 << 12


"""How many bytes of a file's start tell its encoding."""


_WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


def encoding_mismatch_reason(start: bytes, encoding: str) -> str | None:
    """Returns why the file cannot be text of that encoding, or None.

    UTF-16 would be read as damaged text if a byte encoding is declared. Text in bytes could be read as any text if UTF-16 is declared: real
    UTF-16 has NUL bytes at its blanks and line ends.
    """
    if codecs.lookup(encoding).name in _WIDE:
        marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return f"the file is not encoded as {encoding}" if b"\0" not in start and not marked and _is_utf8(start) else None
    found = _detect_wide_encoding(start)
    return f"the file is encoded as {found}, the source declares {encoding}" if found else None


def _detect_wide_encoding(start: bytes) -> str | None:
    """Returns utf-32 or utf-16, by a byte order mark or by the positions of the NUL bytes in text of a Latin script. Otherwise None."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = start[:START]
    nuls = [sample[offset::2].count(0) for offset in (0, 1)]
    return "utf-16" if min(nuls) == 0 and max(nuls) > len(sample) // 4 else None


def _is_utf8(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True
