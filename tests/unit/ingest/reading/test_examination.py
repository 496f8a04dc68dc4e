"""Inspecting a delivered file: is it the one that was discovered, and can it be read? One bad file is reported and stops nothing else."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluice.declare import Source
from sluice.ingest import formats
from sluice.ingest.deliveries.landed_file import read_file_state
from sluice.ingest.files import delivered_bytes
from sluice.ingest.reading import examination
from sluice.ingest.reading.examination import CHANGED, Delivery, ExaminedDelivery, examine_deliveries
from sluice.record_states import VANISHED

JSON = Source(name="clicks")
CSV = Source(name="orders", format="csv")

Deliver = Callable[..., Delivery]


@pytest.fixture
def deliver(tmp_path: Path) -> Deliver:
    """A file, discovered as it is written."""

    def deliver(name: str, data: bytes | str = b"", **said: Any) -> Delivery:
        path = tmp_path / name
        content = data.encode() if isinstance(data, str) else data
        path.write_bytes(content)
        state = read_file_state(path)
        known = {"size": state.size, "modified_at": state.modified_at, "sha256": hashlib.sha256(content).hexdigest(), **said}
        return Delivery(number=1, source="s", file=name, event="delivered", path=path, **known)

    return deliver


def look(source: Source, delivery: Delivery) -> ExaminedDelivery:
    (found,) = examine_deliveries(source, [delivery])
    assert found.delivery is delivery
    return found


def refused(source: Source, delivery: Delivery) -> str | None:
    found = look(source, delivery)
    assert found.state == "quarantined" and not found.empty
    return found.reason


def test_a_file_that_can_be_read_is_ingested_and_its_size_told(deliver: Deliver) -> None:
    text = b'{"a": 1}\n' * 1000
    assert look(JSON, deliver("a", text)).text_bytes == len(text)
    found = look(JSON, deliver("a.gz", gzip.compress(text)))
    assert (found.state, found.reason, found.empty, found.text_bytes) == ("ingested", None, False, len(text))


def test_the_header_of_a_csv_file_is_kept_as_delivered(deliver: Deliver) -> None:
    assert look(CSV, deliver("a.csv", '\ufeffid,"full, name", x\n1,2,3\n')).header == ("id", "full, name", " x")
    assert look(Source(name="o", format="csv", header=False), deliver("a.csv", "1;2\n")).header == ()


@pytest.mark.parametrize("text", [b"", b" \n\r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_file_of_blanks_is_ingested_and_empty(deliver: Deliver, format: Any, text: bytes) -> None:
    for name, data in (("a", text), ("a.gz", gzip.compress(text))):
        found = look(Source(name="s", format=format), deliver(name, data))
        assert (found.state, found.empty, found.header) == ("ingested", True, ())


TSV = Source(name="s", format="csv", delimiter="\t", header=False, schema="a STRING, b BIGINT, c STRING")
ONE_FIELD = Source(name="s", format="csv", header=False, schema="a STRING")
PLAIN = Source(name="s", format="text")


@pytest.mark.parametrize(
    ("source", "text", "records"),
    [
        (PLAIN, b"", 0),
        (PLAIN, b"\xef\xbb\xbf", 0),
        (PLAIN, b"\n", 1),
        (PLAIN, b"\n\n", 2),
        (PLAIN, b"\xef\xbb\xbf \r\n\t", 2),
        (TSV, b"", 0),
        (TSV, b"\t\t\n", 1),
        (TSV, b"\t\t\n\n\t\n\t\t", 2),
        (ONE_FIELD, b" \n\n \n", 2),
        (replace(TSV, header=True), b"\t\t\n", 0),
        (Source(name="s", format="csv", delimiter="\t", header=False), b"\t\t\n", 0),
    ],
)
def test_a_file_of_blanks_has_the_records_that_its_reader_finds(
    deliver: Deliver, source: Source, text: bytes, records: int
) -> None:
    names = ["value"] if source is PLAIN else ["a"] if source is ONE_FIELD else ["a", "b", "c"]
    columns = pa.schema([(name, pa.int64() if name == "b" else pa.string()) for name in names])
    for name, data in (("a", text), ("a.gz", gzip.compress(text))):
        delivery = deliver(name, data)
        found = look(source, delivery)
        blocks = list(formats.read_file_records(source, delivery.path, columns, {}))
        assert (sum(block.rows.num_rows for block in blocks), found.empty, found.state) == (records, not records, "ingested")


def test_a_file_of_blank_lines_whose_path_gives_all_columns_has_no_records(deliver: Deliver) -> None:
    delivery = deliver("a", b"\n\n")
    assert not list(formats.read_file_records(ONE_FIELD, delivery.path, pa.schema([("a", pa.string())]), {"a": "1"}))


def test_an_empty_binary_or_parquet_file_is_empty_and_a_blank_binary_one_is_not(deliver: Deliver) -> None:
    assert look(Source(name="s", format="binary"), deliver("a")).empty
    assert look(Source(name="s", format="parquet"), deliver("a")).empty
    assert not look(Source(name="s", format="binary"), deliver("a", b" \0")).empty


def test_whole_files_are_refused_with_the_reason(deliver: Deliver) -> None:
    cut = gzip.compress(random.Random(5).randbytes(5000).hex().encode())[:-9]
    bomb = gzip.compress(b"0" * 10_000_000)
    wide = "id,name\n1,a\n".encode("utf-16")
    assert refused(JSON, deliver("a.gz", cut)) == "the gzip stream is cut off"
    assert refused(JSON, deliver("a.gz", b'{"a": 1}\n')) == "the file is no gzip stream"
    assert "more than 1000000 bytes" in str(refused(Source(name="s", most_bytes="1m"), deliver("a.gz", bomb)))
    assert "more than 100 times" in str(refused(Source(name="s", most_growth=100), deliver("a.gz", bomb)))
    assert refused(CSV, deliver("a", wide)) == "the file is encoded as utf-16, the source declares utf-8"
    assert refused(CSV, deliver("a", b"id\n\xe9\n")) == "the file is not encoded as utf-8"
    assert refused(CSV, deliver("a", b"id\n\0\n")) == "the file holds NUL bytes; it is no text"
    assert (
        refused(CSV, deliver("a", b"id;b\n1;2\n")) == "the file's fields are separated by semicolons, the source declares commas"
    )
    assert refused(CSV, deliver("a", b'id,"b\n1,2\n')) == (
        "the first line is no header: a quoted field of the row is not closed, or goes on after its closing quote"
    )


def test_a_parquet_file_of_a_few_kilobytes_that_would_fill_the_memory_is_refused_before_it_is_read(deliver: Deliver) -> None:
    source = Source(name="s", format="parquet")

    def packed(rows: int) -> bytes:
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.table({"n": pa.repeat(pa.scalar(7, pa.int64()), rows)}), sink)
        return bytes(sink.getvalue().to_pybytes())

    bomb = packed(10_000_000)
    assert len(bomb) < 50_000
    assert "grows more than 1000 times" in str(refused(source, deliver("a", bomb)))
    assert look(replace(source, most_growth=10_000), deliver("a", bomb)).text_bytes >= 80_000_000
    assert look(source, deliver("b", packed(500_000))).state == "ingested", "a small file with the same value in each row is none"
    # Of one long text in all rows Arrow has one copy, and a row of a table has its own.
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"t": pa.repeat(pa.scalar("x" * 5000), 100_000)}), sink)
    assert "grows more than 1000 times" in str(refused(source, deliver("c", bytes(sink.getvalue().to_pybytes()))))


def test_a_line_that_is_too_long_is_refused_unless_documents_are_read(deliver: Deliver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered_bytes, "LONGEST", 3_000_000)
    long = deliver("a", b'{"a": "' + b"x" * 5_000_000 + b'"}\n')
    assert refused(JSON, long) == "a line of the file has more than 3000000 bytes"
    assert look(Source(name="s", multi_line=True), long).state == "ingested"
    assert look(JSON, deliver("b", (b"x" * 2_000_000 + b"\n") * 3)).state == "ingested"


def test_other_encodings_are_read_as_declared(deliver: Deliver) -> None:
    text = "id,caf\u00e9\n1,\u20ac\n"
    for encoding in ("utf-16", "windows-1252"):
        found = look(Source(name="s", format="csv", encoding=encoding), deliver("a", text.encode(encoding)))
        assert (found.state, found.header) == ("ingested", ("id", "caf\u00e9"))


def test_a_parquet_file_is_read_to_its_end(deliver: Deliver, tmp_path: Path) -> None:
    source = Source(name="s", format="parquet")
    parquet.write_table(pa.table({"a": [str(number) * 9 for number in range(5000)]}), tmp_path / "whole", compression="none")
    whole = (tmp_path / "whole").read_bytes()
    found = look(source, deliver("a", whole))
    assert (found.state, found.empty, found.text_bytes > 5000) == ("ingested", False, True)
    assert look(source, deliver("a.gz", gzip.compress(whole))).state == "ingested"
    for length in (3, 11, 100, len(whole) - 1):
        assert refused(source, deliver("a", whole[:length])) == "the Parquet file is cut off", length
    assert refused(source, deliver("a", b'{"a": 1}\n' * 9)) == "the file is no Parquet file"
    damaged = whole[:4] + bytes(200) + whole[204:]
    assert refused(source, deliver("a", damaged)) == "the Parquet file is damaged"
    parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "none")
    assert look(source, deliver("a", (tmp_path / "none").read_bytes())).empty


def test_text_in_a_parquet_file_that_is_not_utf_8_is_noticed(deliver: Deliver, tmp_path: Path) -> None:
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xe9"))
    parquet.write_table(pa.table({"a": bad}), tmp_path / "bad")
    reason = refused(Source(name="s", format="parquet"), deliver("a", (tmp_path / "bad").read_bytes()))
    assert reason == "the Parquet file is damaged, or has text that is not UTF-8"


def test_a_packed_parquet_file_is_unpacked_in_little_memory_and_no_further_than_allowed(deliver: Deliver, tmp_path: Path) -> None:
    packed = pa.array(["x" * 1_000_000]).dictionary_encode().take(pa.array([0] * 60_000))
    parquet.write_table(pa.table({"a": packed}), tmp_path / "packed")
    delivery = deliver("a", (tmp_path / "packed").read_bytes())
    source = Source(name="s", format="parquet", most_growth=10**9)
    of_process, own = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(own)  # in which nothing is counted of what other tests took
    try:
        assert "more than 10000000000 bytes" in str(refused(source, delivery))
    finally:
        pa.set_memory_pool(of_process)
    assert own.bytes_allocated() < 50_000_000 and 0 < own.max_memory() < 2_000_000_000


def test_a_file_that_is_another_now_is_missed(deliver: Deliver, tmp_path: Path) -> None:
    changed = deliver("a", "1\n")
    changed.path.write_bytes(b"22\n")
    touched = deliver("b", "1\n")
    os.utime(touched.path, ns=(1, 1))
    same_size_and_time = deliver("c", "1\n", sha256=hashlib.sha256(b"2\n").hexdigest())
    for delivery in (changed, touched, same_size_and_time):
        assert (look(JSON, delivery).state, look(JSON, delivery).reason) == ("missed", CHANGED)
    gone = deliver("d")
    gone.path.unlink()
    assert (look(JSON, gone).state, look(JSON, gone).reason) == ("missed", "the file was gone before it could be read")


def test_a_file_that_changes_while_it_is_looked_at_is_missed_even_if_it_cannot_be_read(
    deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = deliver("a", b"\xe9\n")
    content = examination._examine_content

    def and_change(*arguments: Any) -> ExaminedDelivery:
        found = content(*arguments)
        delivery.path.write_bytes(b"whole\n")
        return found

    monkeypatch.setattr(examination, "_examine_content", and_change)
    assert look(JSON, delivery).reason == CHANGED


def test_without_a_known_hash_size_and_time_decide(deliver: Deliver) -> None:
    assert look(JSON, deliver("a", "1\n", sha256=None)).state == "ingested"


def test_a_link_is_refused_unread_wherever_it_leads(deliver: Deliver, tmp_path: Path) -> None:
    deliver("outside", "secret\n")
    for target in ("outside", "nowhere", "."):
        link = tmp_path / f"to_{target}"
        link.symlink_to(tmp_path / target)
        found = look(JSON, Delivery(1, "s", link.name, "delivered", link, 7, None, None))
        assert (found.state, found.reason) == ("quarantined", "the file is a symbolic link; links are not followed")


def test_what_is_gone_is_vanished_and_nothing_is_opened(tmp_path: Path) -> None:
    assert look(JSON, Delivery(1, "s", "a", VANISHED, tmp_path / "a", None, None, None)).state == "vanished"


def test_one_bad_file_stops_no_other_and_the_order_is_kept(deliver: Deliver) -> None:
    deliveries = [deliver(f"{number}", b"\xe9" if number % 3 == 0 else b"1\n") for number in range(20)]
    found = examine_deliveries(JSON, deliveries)
    assert [item.delivery for item in found] == deliveries
    assert [item.state for item in found] == ["quarantined" if number % 3 == 0 else "ingested" for number in range(20)]


def test_a_large_file_is_looked_at_in_little_memory(deliver: Deliver) -> None:
    delivery = deliver("a.gz", gzip.compress(b'{"a": 123456789}\n' * 3_000_000), sha256=None)
    tracemalloc.start()
    try:
        assert look(JSON, delivery).state == "ingested"
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
