"""Dictionary pages of Parquet files: what they list no row need have, as where rows were taken out and the dictionary stayed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa

from sluice.erasure.scan.cells import look_into
from sluice.erasure.scan.decoders.compressed import varint
from sluice.erasure.scan.decoders.damage import LIMIT, Damaged, exactly
from sluice.erasure.scan.inspection import Inspection

DECODER = "parquet dictionary"
_HEADER = 1 << 16
"""Bytes within which a page's header ends."""
_DICTIONARY_PAGE = 2
_TYPE, _SIZE, _PACKED = 1, 2, 3
"""Fields of a page's header."""
_NUMBERS = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}
_CODECS = {"SNAPPY": ("snappy",), "GZIP": ("gzip",), "ZSTD": ("zstd",), "BROTLI": ("brotli",), "LZ4": ("lz4_raw", "lz4")}


def search_dictionary(stream: IO[bytes], chunk: Any, declared: Any, inspection: Inspection) -> None:
    """Search the dictionary of a column chunk, where it has one. declared: the column in the file's schema. Raises Damaged."""
    start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
    stream.seek(start)
    header, length = _struct(stream.read(_HEADER), 0)
    if header.get(_TYPE) != _DICTIONARY_PAGE:
        return
    stream.seek(start + length)
    page = _unpacked(chunk.compression, exactly(stream, header[_PACKED]), header[_SIZE])
    column = chunk.path_in_schema
    is_decimal = "Decimal" in str(declared.logical_type)
    if chunk.physical_type in _NUMBERS:
        values = np.frombuffer(page, _NUMBERS[chunk.physical_type])
        whole = values[values % 10**declared.scale == 0] // 10**declared.scale if is_decimal else values
        inspection.numbers(DECODER, column, whole)
    elif is_decimal:
        _decimals(list(_texts(chunk.physical_type, declared.length, page)), declared.scale, column, inspection)
    elif chunk.physical_type != "INT96":  # instants
        texts = list(_texts(chunk.physical_type, declared.length, page))
        inspection.several(DECODER, texts, column)
        if "String" not in str(declared.logical_type):
            cells = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            look_into(np.frombuffer(b"".join(texts), np.uint8), cells, inspection)


def _decimals(values: list[bytes], scale: int, column: str, inspection: Inspection) -> None:
    numbers = [int.from_bytes(value, "big", signed=True) for value in values]
    whole = [number // 10**scale for number in numbers if number % 10**scale == 0]
    small = [number for number in whole if abs(number) < 2**63]
    inspection.numbers(DECODER, column, np.array(small, np.int64))
    inspection.several(DECODER, (str(number).encode() for number in whole if abs(number) >= 2**63), column)


def _texts(kind: str, length: int, page: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(page):
        size = length
        if kind == "BYTE_ARRAY":
            if at + 4 > len(page):
                raise Damaged("a dictionary of the Parquet file cannot be read")
            (size,) = struct.unpack_from("<I", page, at)
            at += 4
        if at + size > len(page):
            raise Damaged("a dictionary of the Parquet file cannot be read")
        yield page[at : at + size]
        at += size


def _unpacked(codec: str, page: bytes, size: int) -> bytes:
    if codec == "UNCOMPRESSED":
        return page
    if size > LIMIT:
        raise Damaged("a dictionary of the Parquet file is too large")
    for one in _CODECS.get(codec, ()):
        try:
            return bytes(pa.Codec(one).decompress(page, decompressed_size=size, asbytes=True)) if size else b""
        except (OSError, pa.ArrowException):
            continue
    raise Damaged("a dictionary of the Parquet file cannot be unpacked")


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """A struct in Thrift's compact protocol: its fields by number, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head, at = _byte(data, at)
        if not head:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _whole(data, at)
        fields[number], at = _value(data, at, head & 15)


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return _byte(data, at)
    if kind in (4, 5, 6):
        return _whole(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        size, at = varint(data, at)
        return data[at : at + size], at + size
    if kind in (9, 10):
        head, at = _byte(data, at)
        count, at = (head >> 4, at) if head >> 4 < 15 else varint(data, at)
        found = []
        for _ in range(count):
            one, at = _byte(data, at) if head & 15 in (1, 2) else _value(data, at, head & 15)
            found.append(one)
        return found, at
    if kind == 12:
        return _struct(data, at)
    raise Damaged("a page of the Parquet file has a header of another kind")


def _byte(data: bytes, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise Damaged("the header of a page of the Parquet file is cut off")
    return data[at], at + 1


def _whole(data: bytes, at: int) -> tuple[int, int]:
    found, at = varint(data, at)
    return (found >> 1) ^ -(found & 1), at
