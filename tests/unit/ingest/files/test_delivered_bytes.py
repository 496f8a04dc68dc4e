"""From a delivered file to its text: decompressed, as UTF-8, in whole lines, within limits; and why a file cannot be read."""

from __future__ import annotations

import bz2
import gzip
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.declare import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import UnreadableFile

CHANCE = random.Random(4711)
"""The same each time: what a decompressor makes of a damaged byte depends on what was packed."""
LINES = b"".join(b'{"number": %d, "text": "%s"}\n' % (number, CHANCE.randbytes(8).hex().encode()) for number in range(5000))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gz": ("gzip", gzip.compress),
    "bz2": ("bzip2", bz2.compress),
    "zst": ("zstd", zstd),
}
SOURCE = Source(name="clicks")
packed = pytest.mark.parametrize("suffix", list(PACKERS))


def reason(path: Path, source: Source = SOURCE) -> str:
    with pytest.raises(UnreadableFile) as raised:
        list(delivered_bytes.read_line_blocks(source, path))
    return str(raised.value)


def landed(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@packed
def test_what_is_compressed_is_read_as_if_it_were_not(tmp_path: Path, suffix: str) -> None:
    _, pack = PACKERS[suffix]
    path = landed(tmp_path, f"a.jsonl.{suffix}", pack(LINES))
    assert b"".join(delivered_bytes.read_line_blocks(SOURCE, path)) == LINES
    assert b"".join(delivered_bytes.read_file_chunks(SOURCE, path)) == LINES


@packed
def test_streams_one_after_the_other_are_one_file(tmp_path: Path, suffix: str) -> None:
    _, pack = PACKERS[suffix]
    path = landed(tmp_path, f"a.{suffix.upper()}", pack(LINES) + pack(b"more\n"))
    assert b"".join(delivered_bytes.read_line_blocks(SOURCE, path)) == LINES + b"more\n"


@packed
def test_a_stream_that_is_cut_off_is_noticed_wherever_it_is_cut(tmp_path: Path, suffix: str) -> None:
    name, pack = PACKERS[suffix]
    whole = pack(LINES)
    for length in (1, 3, 5, 12, len(whole) // 2, len(whole) - 5, len(whole) - 1):
        assert reason(landed(tmp_path, f"a.{suffix}", whole[:length])) == f"the {name} stream is cut off", length
    for length in (1, 2, 12, len(whole) - 1):
        assert reason(landed(tmp_path, f"a.{suffix}", whole + whole[:length])) == f"the {name} stream is cut off", length


@packed
def test_what_is_no_such_stream_is_said_to_be_none(tmp_path: Path, suffix: str) -> None:
    name, pack = PACKERS[suffix]
    assert reason(landed(tmp_path, f"a.{suffix}", LINES)) == f"the file is no {name} stream"
    after = "the zstd stream is damaged" if name == "zstd" else f"what follows in the file is no {name} stream"
    assert reason(landed(tmp_path, f"a.{suffix}", pack(LINES) + LINES)) == after


@pytest.mark.parametrize("suffix", ["gz", "bz2"])
def test_a_damaged_stream_is_noticed_and_padding_is_none(tmp_path: Path, suffix: str) -> None:
    name, pack = PACKERS[suffix]
    whole = bytearray(pack(LINES))
    assert (
        b"".join(delivered_bytes.read_line_blocks(SOURCE, landed(tmp_path, f"a.{suffix}", bytes(whole) + bytes(100_000))))
        == LINES
    )
    goes_on = landed(tmp_path, f"a.{suffix}", bytes(whole) + bytes(100_000) + pack(b"more\n"))
    assert b"".join(delivered_bytes.read_line_blocks(SOURCE, goes_on)) == LINES + b"more\n"
    whole[len(whole) // 2] ^= 255
    assert reason(landed(tmp_path, f"a.{suffix}", bytes(whole))) == f"the {name} stream is damaged"


@packed
def test_an_empty_file_has_no_text_compressed_or_not(tmp_path: Path, suffix: str) -> None:
    _, pack = PACKERS[suffix]
    assert list(delivered_bytes.read_line_blocks(SOURCE, landed(tmp_path, f"a.{suffix}", b""))) == []
    assert list(delivered_bytes.read_line_blocks(SOURCE, landed(tmp_path, f"b.{suffix}", pack(b"")))) == []
    assert list(delivered_bytes.read_line_blocks(SOURCE, landed(tmp_path, "c", b""))) == []


@packed
def test_a_decompression_bomb_stops_early_and_in_little_memory(tmp_path: Path, suffix: str) -> None:
    _, pack = PACKERS[suffix]
    bomb = landed(tmp_path, f"bomb.{suffix}", pack(b"0" * 60_000_000))
    small = Source(name="clicks", most_bytes="20m", most_growth=10**9)
    flat = Source(name="clicks", most_growth=50)
    tracemalloc.start()
    try:
        for source, limit in ((small, "most_bytes"), (flat, "most_growth")):
            seen = 0
            with pytest.raises(UnreadableFile, match=limit):
                for part in delivered_bytes.read_file_chunks(source, bomb):
                    seen += len(part)
            assert seen <= 20_000_000
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_plain_file_may_not_be_larger_than_its_source_allows(tmp_path: Path) -> None:
    source = Source(name="clicks", most_bytes=10)
    assert b"".join(delivered_bytes.read_line_blocks(source, landed(tmp_path, "a", b"123456789\n"))) == b"123456789\n"
    assert "more than 10 bytes" in reason(landed(tmp_path, "a", b"123456789\n1"), source)


def test_blocks_are_whole_lines_however_long_one_is(tmp_path: Path) -> None:
    long = b"x" * 30_000_000
    path = landed(tmp_path, "a", LINES + long + b"\n" + LINES + b"no end")
    blocks = list(delivered_bytes.read_line_blocks(SOURCE, path))
    assert b"".join(blocks) == LINES + long + b"\n" + LINES + b"no end"
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert max(map(len, blocks)) < 33_000_000


def test_a_line_without_an_end_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered_bytes, "LONGEST", 3_000_000)
    assert reason(landed(tmp_path, "a", b"x" * 5_000_000)) == "a line of the file has more than 3000000 bytes"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "windows-1252", "latin-1", "shift_jis"]
)
def test_every_encoding_becomes_utf_8_without_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    text = ("name;caf\u00e9\n" if encoding != "shift_jis" else "name;\u30c6\u30b9\u30c8\n") * 200_000
    source = Source(name="clicks", encoding=encoding)
    path = landed(tmp_path, "a", text.encode(encoding))
    assert b"".join(delivered_bytes.read_line_blocks(source, path)) == text.encode()
    if encoding.startswith(("utf-8", "utf-16-", "utf-32-")):
        path = landed(tmp_path, "a", ("\ufeff" + text).encode(encoding.removesuffix("-sig")))
        assert b"".join(delivered_bytes.read_line_blocks(source, path)) == text.encode()


def test_text_that_is_not_in_its_encoding_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert reason(landed(tmp_path, "a", LINES + "\u00e9".encode("latin-1"))) == "the file is not encoded as utf-8"
    assert reason(landed(tmp_path, "a", LINES + b"\xc3")) == "the file is not encoded as utf-8"  # half a character
    part = 1 << 20  # a character whose halves are apart, the first at the end of what is read at a time
    assert (
        reason(landed(tmp_path, "a", b"x" * (part - 1) + b"\xc3" + b"x" * part + b"\xa9")) == "the file is not encoded as utf-8"
    )
    assert b"".join(delivered_bytes.read_line_blocks(SOURCE, landed(tmp_path, "a", b"x" * (part - 1) + b"\xc3\xa9"))).endswith(
        b"x\xc3\xa9"
    )
    assert reason(landed(tmp_path, "a", b"\xed\xa0\x80")) == "the file is not encoded as utf-8"  # a lone surrogate
    ascii_only = Source(name="clicks", encoding="ascii")
    assert reason(landed(tmp_path, "a", "\u00e9".encode()), ascii_only) == "the file is not encoded as ascii"
    wide = Source(name="clicks", encoding="utf-16")
    assert reason(landed(tmp_path, "a", LINES), wide) == "the file is not encoded as utf-16"
    assert reason(landed(tmp_path, "a", "ab\n".encode("utf-16")[:-1]), wide) == "the file is not encoded as utf-16"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_where_utf_8_is_declared_is_named(tmp_path: Path, encoding: str) -> None:
    path = landed(tmp_path, "a", "id,name\n1,a\n".encode(encoding))
    found = "utf-32" if encoding == "utf-32" else "utf-16"
    assert reason(path) == f"the file is encoded as {found}, the source declares utf-8"


def test_nul_bytes_are_no_text(tmp_path: Path) -> None:
    for data in (b"id,name\n7,\0\n", b"7,\0\n" * 100, LINES * 100 + b"\0\n", bytes(1000)):
        assert reason(landed(tmp_path, "a", data)) == "the file holds NUL bytes; it is no text"


def test_a_link_is_not_followed_and_a_pipe_not_waited_for(tmp_path: Path) -> None:
    outside = landed(tmp_path, "outside", b"secret\n")
    (tmp_path / "link").symlink_to(outside)
    assert reason(tmp_path / "link") == "the file is a symbolic link; links are not followed"
    os.mkfifo(tmp_path / "pipe")
    assert reason(tmp_path / "pipe") == "it is no regular file; nothing else is read"
    assert reason(tmp_path) == "it is no regular file; nothing else is read"


def test_no_reading_module_loads_spark() -> None:
    code = (
        "import sys, sluice.ingest.reading.examination, sluice.ingest.formats.delimited, sluice.ingest.formats.columnar, "
        "sluice.ingest.formats.plain; sys.exit(any(name.split('.')[0] in ('pyspark', 'py4j', 'delta') for name in sys.modules))"
    )
    include = Path(__file__).resolve().parents[4] / "include"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(include)}).returncode == 0
