"""Makes small files as other programs write them: compressed files, archives, and Spark's state stores."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather, orc


def pack_lz4_java(data: bytes) -> bytes:
    """Packs a stream of lz4-java, as in Spark's state files: one block and the end mark."""
    packed = pa.Codec("lz4_raw").compress(data, asbytes=True)
    return _build_lz4_block(0x25, packed, len(data)) + _build_lz4_block(0x15, b"", 0)


def build_rocksdb_table(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A small RocksDB table: one block of data, its index, and the footer."""
    data = _build_rocksdb_block(entries, compression=4)
    where = _encode_varint(0) + _encode_varint(len(data) - 5)
    index = _build_rocksdb_block([(entries[-1][0], where)])
    meta = _build_rocksdb_block([])
    handles = _encode_block_handle(len(data) + len(index), meta) + _encode_block_handle(len(data), index)
    footer = b"\x01" + handles.ljust(40, b"\0") + struct.pack("<I", 5) + (0x88E241B785F4CFF7).to_bytes(8, "little")
    return data + index + meta + footer


def build_state_schema(key: str, value: str) -> bytes:
    """Builds the schema file that Spark writes beside a state store, here with one numeric key and one numeric value."""
    made = b"\x00\x02v2"
    for name in (key, value):
        field = {"name": name, "type": "long", "nullable": True, "metadata": {}}
        text = json.dumps({"type": "struct", "fields": [field]}, separators=(",", ":")).encode()
        made += struct.pack(">IH", 1, len(text)) + text
    return made


def build_state_row(number: int) -> bytes:
    """Builds a state store's row of one number: a version, no NULL, the number."""
    return b"\0" + struct.pack("<qq", 0, number)


def pack_zip(members: Mapping[str, bytes]) -> bytes:
    """Packs a zip archive from its members by name."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def pack_tar(name: str, data: bytes) -> bytes:
    """Packs a tar archive with one member."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


def encode_parquet(rows: pa.Table, dictionary: bool = True) -> bytes:
    """A Parquet file."""
    target = io.BytesIO()
    pq.write_table(rows, target, use_dictionary=dictionary)
    return target.getvalue()


def encode_unused_dictionary_entry(value: str) -> bytes:
    """Encodes a Parquet file whose dictionary has a value that no row uses."""
    target = io.BytesIO()
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["-", value]))
    pq.write_table(pa.table({"of": column}), target, compression="gzip", store_schema=False)
    return target.getvalue()


def encode_orc(rows: pa.Table) -> bytes:
    """An ORC file, compressed."""
    target = io.BytesIO()
    orc.write_table(rows, target, compression="zlib")
    return target.getvalue()


def encode_arrow(rows: pa.Table) -> bytes:
    """An Arrow file, compressed."""
    target = io.BytesIO()
    feather.write_feather(rows, target, compression="zstd")
    return target.getvalue()


def compress_with_codec(codec: str, data: bytes) -> bytes:
    """Compresses with a codec of Arrow's, such as zstd."""
    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, codec) as stream:
        stream.write(data)
    content: bytes = target.getvalue().to_pybytes()
    return content


def compress_raw_snappy(data: bytes) -> bytes:
    """Compresses into a bare snappy block, without frames."""
    block: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return block


def compress_framed_snappy(data: bytes) -> bytes:
    """Compresses into snappy's own framing format, with zeros as checksums."""
    block = bytes(4) + compress_raw_snappy(data)
    return b"\xff\x06\x00\x00sNaPpY" + b"\x00" + len(block).to_bytes(3, "little") + block


def compress_xerial_snappy(data: bytes) -> bytes:
    """Compresses as snappy-java does."""
    block = compress_raw_snappy(data)
    return b"\x82SNAPPY\0" + struct.pack(">III", 1, 1, len(block)) + block


def _build_lz4_block(token: int, packed: bytes, size: int) -> bytes:
    return b"LZ4Block" + struct.pack("<BIII", token, len(packed), size, 0) + packed


def build_rocksdb_log_record(payload: bytes) -> bytes:
    """A record of a RocksDB log."""
    return struct.pack("<IHB", 0, len(payload), 1) + payload


def _build_rocksdb_block(entries: list[tuple[bytes, bytes]], compression: int = 0) -> bytes:
    data = b"".join(
        _encode_varint(0) + _encode_varint(len(key)) + _encode_varint(len(value)) + key + value for key, value in entries
    )
    data += struct.pack("<II", 0, 1)
    if compression:
        data = _encode_varint(len(data)) + pa.Codec("lz4_raw").compress(data, asbytes=True)
    return data + bytes([compression]) + bytes(4)


def _encode_block_handle(at: int, block: bytes) -> bytes:
    return _encode_varint(at) + _encode_varint(len(block) - 5)


def _encode_varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
