"""Opens a file and everything inside it: chooses a decoder for each part, and reports what nothing opens."""

from __future__ import annotations

import io
import os
import re
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from residue import kinds, parts
from residue.cells import open_cells
from residue.damage import LIMIT, DamagedContent
from residue.decoders import columnar, compressed, databases, state_rows
from residue.inspection import Inspection
from residue.parts import CHUNK, PartedStream, SearchedStream
from residue.stored_files import FilePath

_TEXT = (None, *parts.WIDE)
DEPTH = 4
"""How deep nested content is opened, such as a log in a gzip in a zip in a tar. Anything deeper is reported as unread."""
_MOMENT = 0.2
"""Seconds after which a file without the expected structure is examined again."""
_STREAMS: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    "gzip": compressed.decompress_gzip,
    "bzip2": compressed.decompress_bzip2,
    "xz": compressed.decompress_xz,
    "zstd": compressed.decompress_zstd,
    "lz4": compressed.decompress_lz4_frames,
    "lz4-java": compressed.decompress_lz4_java_blocks,
    "xerial": compressed.decompress_xerial_snappy,
    "snappy framed": compressed.decompress_framed_snappy,
    "snappy": compressed.decompress_unframed_snappy,
    "hadoop lz4": compressed.decompress_hadoop_lz4,
    "deflate": compressed.decompress_deflate,
}
_COLUMNAR: dict[str, Callable[[IO[bytes], Inspection], None]] = {
    "parquet": columnar.search_parquet_file,
    "orc": columnar.search_orc_file,
    "arrow": columnar.search_arrow_file,
}


def search_file(path: FilePath, inspection: Inspection) -> int:
    """Searches a file: its raw bytes, and the output of its decoder. Returns its size in bytes."""
    with path.open("rb") as stream:
        head = stream.read(kinds.HEAD)
        stream.seek(0)
        _search_stream_by_kind(stream, head, inspection.path, inspection, 0, path)
        return os.fstat(stream.fileno()).st_size


def search_contained_bytes(content: bytes, name: str, inspection: Inspection, depth: int) -> None:
    """Searches content that lies within something else."""
    _search_stream_by_kind(io.BytesIO(content), content[: kinds.HEAD], name, inspection, depth, None)


def is_container_kind(kind: str | None) -> bool:
    """Whether a cell of this kind is a file in itself, openable or known not to be, rather than a value."""
    return kind in _STREAMS or kind in _COLUMNAR or kind in ("zip", "tar", "sqlite", "pickle", "encrypted parquet", *parts.WIDE)


def _search_stream_by_kind(
    stream: IO[bytes], head: bytes, name: str, inspection: Inspection, depth: int, path: FilePath | None
) -> None:
    if not head:
        inspection.read["empty"] += 0
        return
    kind = kinds.detect_file_kind(head, name)
    if kind in kinds.PLAIN and not _is_confirmed_after_retry(str(kind), stream, path):
        kind = None  # only its name suggests this kind
    if kind in _TEXT:
        parts.search_text_stream(stream, head, name, inspection, kind)
        return
    if depth > DEPTH:
        inspection.unread(f"deeper than {DEPTH} within other files")
    elif kind == "encrypted parquet":
        inspection.unread("an encrypted Parquet file")
    try:
        if kind in _STREAMS and depth <= DEPTH:
            _search_compressed_stream(str(kind), stream, name, inspection, depth)
            return
        _search_raw_bytes(stream, inspection, "raw bytes")
        if depth <= DEPTH:
            _decode_seekable_stream(str(kind), stream, name, inspection, depth, path)
    except DamagedContent as damage:
        inspection.unread(str(damage))


def _is_confirmed_after_retry(kind: str, stream: IO[bytes], path: FilePath | None) -> bool:
    """Whether content has the structure of its kind. A file that a live database may be writing is tried again a moment later."""
    if kinds.has_confirmed_structure(kind, stream, path):
        return True
    if not isinstance(path, Path):  # no database writes into an object
        return False
    time.sleep(_MOMENT)
    return kinds.has_confirmed_structure(kind, stream, path)


def _decode_seekable_stream(
    kind: str, stream: IO[bytes], name: str, inspection: Inspection, depth: int, path: FilePath | None
) -> None:
    """Lets a decoder open content that can be read at any position."""
    stream.seek(0)
    if kind in _COLUMNAR:
        _COLUMNAR[kind](stream, inspection)
    elif kind == "sqlite":
        databases.search_sqlite_database(path, None if isinstance(path, Path) else stream.read(), inspection)
    elif kind == "rocksdb table":
        # Keys and values, put together from the parts that the file stores separately.
        inspection.several("rocksdb table", (part for entry in databases.read_rocksdb_table(stream) for part in entry))
        state_rows.search_state_store_table(path, databases.read_rocksdb_table(stream), inspection)
    elif kind == "rocksdb log":
        inspection.several("rocksdb log", databases.read_rocksdb_log(stream))
    elif kind == "zip":
        _search_zip_archive(stream, name, inspection, depth)
    elif kind == "tar":
        _search_tar_archive(stream, name, inspection, depth)
    elif kind == "state schema":
        inspection.whole(kind, state_rows.read_state_schema_text(stream))
    elif kind == "pickle":
        _search_pickle(stream, inspection)
    elif kind in kinds.PLAIN:
        inspection.read[kind] += 0


def _search_pickle(stream: IO[bytes], inspection: Inspection) -> None:
    """Searches the texts and bytes that pickle operations are given; the bytes may be files themselves."""
    given = list(kinds.read_pickle_arguments(stream))
    packed = [bytes(one) for one in given if isinstance(one, bytes | bytearray)]
    inspection.several("pickle", [*(one.encode("utf-8", "surrogatepass") for one in given if isinstance(one, str)), *packed])
    open_cells(packed, inspection)


def _search_raw_bytes(stream: IO[bytes], inspection: Inspection, decoder: str) -> None:
    feed = inspection.stream(decoder, text=True)
    while chunk := stream.read(CHUNK):
        feed.feed(chunk)
    feed.close()


def _search_compressed_stream(kind: str, stream: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    """Searches a compressed stream's own bytes while they are read, and opens what it decompresses to."""
    source = SearchedStream(stream, inspection)
    inner = PartedStream(_STREAMS[kind](source), inspection, kind)  # type: ignore[arg-type]
    try:
        head = inner.peek(kinds.HEAD)
        if kind == "lz4-java" and kinds.detect_file_kind(head, "") is None:
            # Spark's rows and records as they are in memory: state, shuffled and spilt blocks, event logs.
            _search_raw_bytes(inner, inspection, "spark blocks")  # type: ignore[arg-type]
        else:
            _search_extracted_stream(inner, head, _strip_compression_suffix(name), inspection, depth + 1)
    finally:
        source.rest()


def _search_extracted_stream(stream: PartedStream, head: bytes, name: str, inspection: Inspection, depth: int) -> None:
    """Searches extracted content: in parts where possible, in memory if a decoder needs all of it."""
    kind = kinds.detect_file_kind(head, name)
    if kind in _STREAMS or kind in _TEXT:
        _search_stream_by_kind(stream, head, name, inspection, depth, None)  # type: ignore[arg-type]
        return
    content = stream.read(LIMIT + 1)
    if len(content) <= LIMIT:
        search_contained_bytes(content, name, inspection, depth)
        return
    inspection.unread(f"a {kind} of more than {LIMIT >> 20} MiB within another file")
    feed = inspection.stream("raw bytes")
    feed.feed(content)
    while part := stream.read(CHUNK):
        feed.feed(part)
    feed.close()


def _search_zip_archive(stream: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            inspection.several("names", [archive.comment, *(one.filename.encode() + b"\n" + one.comment for one in members)])
            for member in members:
                inspection.read["zip"] += member.compress_size
                if not member.is_dir():
                    with archive.open(member) as opened:
                        _search_archive_member(opened, f"{name}/{member.filename}", inspection, depth + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError):
        raise DamagedContent("the zip archive, or a part of it, cannot be read") from None


def _search_tar_archive(stream: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                inspection.whole("names", f"{member.name}\n{member.linkname}\n{member.uname}\n{member.pax_headers}".encode())
                inspection.read["tar"] += member.size
                opened = archive.extractfile(member) if member.isreg() else None
                if opened is not None:
                    _search_archive_member(opened, f"{name}/{member.name}", inspection, depth + 1)
    except tarfile.TarError:
        raise DamagedContent("the tar archive, or a part of it, cannot be read") from None


def _search_archive_member(opened: IO[bytes], name: str, inspection: Inspection, depth: int) -> None:
    inner = PartedStream(iter(lambda: opened.read(CHUNK), b""), inspection, "")
    _search_extracted_stream(inner, inner.peek(kinds.HEAD), name, inspection, depth)


def _strip_compression_suffix(name: str) -> str:
    """The name of a compressed file without its suffix."""
    return re.sub(r"\.(gz|bz2|xz|zst|lz4|snappy|sz|deflate)\Z", "", name)
