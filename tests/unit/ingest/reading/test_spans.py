"""A large file is read by several workers, each a span of it: together they read what one reader would, with the same numbers."""

from __future__ import annotations

import codecs
import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, reject
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyarrow import parquet

from sluice.declare import Source
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.ingest import formats
from sluice.ingest.deliveries import discovery
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan, UnreadableFile
from sluice.ingest.formats.parquet import list_row_groups
from sluice.ingest.reading import workers
from sluice.ingest.reading.examination import Delivery, ExaminedDelivery

SOURCE, TEXT, PARQUET = Source(name="s"), Source(name="t", format="text"), Source(name="p", format="parquet")
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
PIECES = [
    "\n",
    "\r\n",
    " \n",
    '{"a":1}\n',
    '{"a":2,"b":"é🙂"}\n',
    '{"a":"x"}\n',
    "no object\n",
    "\ufeff\n",
    '{"b":"' + "x" * 50 + '"}\n',
    "é",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the files of all examples, one after the other."""
    return tmp_path_factory.mktemp("spans")


def examine(path: Path) -> ExaminedDelivery:
    return ExaminedDelivery(
        Delivery(7, "s", path.name, "delivered", path, None, None, None), "ingested", text_bytes=path.stat().st_size
    )


def read_rows(source: Source, path: Path) -> list[dict[str, Any]]:
    """Like `list_rows`, for a file that can be cut anywhere."""
    return list_rows(source, examine(path), pa.schema([("value", pa.string())]) if source is TEXT else SCHEMA)


def list_rows(source: Source, item: ExaminedDelivery, columns: pa.Schema) -> list[dict[str, Any]]:
    """The rows that all parts of a file have, in the order of the parts, each numbered on from the part before."""
    divided = sorted((p for one in workers.balance_worker_bins(source, [item]) for p in one), key=lambda located: located.part)
    rows: list[dict[str, Any]] = []
    for located in divided:
        before = len(rows)
        for block in workers.read_delivery_blocks(source, located, columns):
            rows += [{**row, "_row": row["_row"] + before} for row in block.rows.to_pylist()]
    return rows


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.integers(1, 40), st.booleans(), st.sampled_from([SOURCE, TEXT]))
@examples(deadline=None, max_examples=300)
def test_parts_have_the_rows_of_the_whole(folder: Path, pieces: list[str], part: int, marked: bool, source: Source) -> None:
    path = folder / "a.jsonl"
    path.write_bytes((codecs.BOM_UTF8 if marked else b"") + "".join(pieces).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivered_bytes, "PART_BYTES", 1 << 30)
        whole = read_rows(source, path)
        patch.setattr(delivered_bytes, "PART_BYTES", part)
        assert read_rows(source, path) == whole
        assert [row["_row"] for row in whole] == list(range(len(whole)))


CSV_PIECES = [
    "a,b\n",
    "\n",
    "\r\n",
    "\r",
    "1,x\n",
    '2,"x"\r\n',
    '3,"one\nline\r\n"\n',
    '4,"say ""so"""\n',
    '5,"é🙂"\n',
    '6,5" pipe\n',
    '7,"never closed\n',
    '8,"closed"and on\n',
    "9\n",
    "10,x,y\n",
    " \n",
    '"',
    ",",
    '""\n',
    "x" * 30,
    "\ufeff",
]


def examine_text_file(source: Source, path: Path) -> ExaminedDelivery:
    """What the inspection of a file returns, which finds where the file can be cut."""
    found = formats.examine_file_content(source, path, lambda _: None)
    return replace(examine(path), header=found.header, text_bytes=found.text_bytes, cuts=found.cuts)


@given(
    st.builds(
        lambda blank, rows: [*blank, "a,b\n", *rows],
        st.lists(st.sampled_from(["\n", "\r", " \r\n"]), max_size=5),
        st.lists(st.sampled_from(CSV_PIECES), min_size=1, max_size=20),
    ),
    st.integers(1, 40),
    st.integers(3, 24),
    st.booleans(),
    st.sampled_from([
        Source(name="c", format="csv"),
        Source(name="c", format="csv", header=False, schema="a STRING, b STRING"),
        Source(name="c", format="csv", quote="é"),
    ]),
)
@examples(deadline=None, max_examples=600)
def test_parts_of_a_csv_file_have_the_rows_of_the_whole(
    folder: Path, pieces: list[str], part: int, chunk: int, marked: bool, source: Source
) -> None:
    path = folder / "a.csv"
    path.write_bytes((codecs.BOM_UTF8 if marked else b"") + "".join(pieces).encode())
    columns = pa.schema([("a", pa.string()), ("b", pa.string())])
    with pytest.MonkeyPatch.context() as patch:
        try:
            whole = list_rows(source, examine_text_file(source, path), columns)
        except UnreadableFile:
            reject()
        # So few bytes at a time that cuts are looked for nearly everywhere; three hold a byte order mark.
        for name, size in (("PART_BYTES", part), ("_CHUNK", chunk), ("START", 3)):
            patch.setattr(delivered_bytes, name, size)
        divided = examine_text_file(source, path)
        for cut in divided.cuts:
            event("cut")
            assert path.read_bytes()[cut - 1 : cut] == b"\n"
        assert list_rows(source, divided, columns) == whole
    assert [row["_row"] for row in whole] == list(range(len(whole)))


@pytest.mark.parametrize("dirt", ["", '0,5" pipe\n', '0,"x\ny"\n'], ids=["clean", "a stray quote", "a line end in quotes"])
def test_a_large_csv_file_is_cut_into_parts_of_about_the_same_size(
    dirt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + dirt + "".join(f'{number},"x{number}"\n' for number in range(20_000)))
    monkeypatch.setattr(delivered_bytes, "PART_BYTES", 50_000)
    monkeypatch.setattr(delivered_bytes, "_CHUNK", 1000)
    found = examine_text_file(Source(name="c", format="csv"), path)
    size = path.stat().st_size
    assert len(found.cuts) == -(-size // 50_000) - 1
    starts = [0, *found.cuts, size]
    assert all(after - before < 55_000 for before, after in pairwise(starts))


def test_a_csv_file_is_cut_after_line_feeds_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that began after a carriage return would begin at the next line feed instead, which may be within a row."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n" + b'1,5" pipe\r2,"x\ny"\r' * 400)
    for name, size in (("PART_BYTES", 100), ("_CHUNK", 10), ("START", 3)):
        monkeypatch.setattr(delivered_bytes, name, size)
    source = Source(name="c", format="csv")
    found = examine_text_file(source, path)
    assert all(path.read_bytes()[cut - 1 : cut] == b"\n" for cut in found.cuts)
    assert list_rows(source, found, SCHEMA) == list_rows(source, replace(found, cuts=()), SCHEMA)


def test_after_a_csv_row_that_is_longer_than_a_part_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,x\n" * 1000 + '2,"' + "x" * 5000 + '"\n' + "1,x\n" * 1000)
    for name, size in (("PART_BYTES", 2000), ("_CHUNK", 100), ("START", 3)):
        monkeypatch.setattr(delivered_bytes, name, size)
    assert max(examine_text_file(Source(name="c", format="csv"), path).cuts) <= 4004


def test_a_large_file_is_divided_and_its_parts_are_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":1}\n' * 1000)
    monkeypatch.setattr(delivered_bytes, "PART_BYTES", 1000)
    monkeypatch.setattr(workers, "A_TASK", 2000)
    bins = workers.balance_worker_bins(SOURCE, [examine(path)])
    assert [len(one) for one in bins] == [2, 2, 2, 1, 1]
    assert [row["_row"] for row in read_rows(SOURCE, path)] == list(range(1000))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (SOURCE, "a.jsonl.gz"),
        (Source(name="s", multi_line=True), "a.json"),
        (Source(name="s", format="csv"), "a.csv.gz"),
        (Source(name="s", encoding="utf-16"), "a.jsonl"),
        (Source(name="s", encoding="shift_jis"), "a.jsonl"),
    ],
    ids=["compressed", "documents", "compressed CSV", "two bytes a letter", "a letter may hold a line end's byte"],
)
def test_what_cannot_be_cut_anywhere_has_one_reader(
    source: Source, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"x" * 10_000) if name.endswith("gz") else b"x" * 10_000)
    monkeypatch.setattr(delivered_bytes, "PART_BYTES", 1)
    assert not formats.is_read_in_spans(source, path)
    assert [[located.span for located in one] for one in workers.balance_worker_bins(source, [examine(path)])] == [[None]]


def test_a_span_that_cannot_be_read_says_so_as_the_whole_does(tmp_path: Path) -> None:
    for damage, reason in ((b"\xff", "not encoded as utf-8"), (b"\0", "NUL bytes")):
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"a":1}\n' * 10 + damage + b"\n")
        assert len(list(delivered_bytes.read_line_blocks(SOURCE, path, FileSpan(0, 40)))) == 1
        for span in (None, FileSpan(40, None)):
            with pytest.raises(UnreadableFile, match=reason):
                list(delivered_bytes.read_line_blocks(SOURCE, path, span))


def test_a_line_that_is_longer_than_its_span_belongs_to_one_part_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    long = json.dumps({"b": "x" * 3_000_000})
    path.write_text(f'{{"a":1}}\n{long}\n{{"a":2}}')
    spans = [FileSpan(0, 5), FileSpan(5, 1_000_000), FileSpan(1_000_000, 2_000_000), FileSpan(2_000_000, None)]
    found = [b"".join(delivered_bytes.read_line_blocks(SOURCE, path, span)) for span in spans]
    assert [len(one) for one in found] == [8, len(long) + 1, 0, 7]


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 30), st.integers(1, 400))
@examples(deadline=None, max_examples=100)
def test_parts_of_a_parquet_file_have_its_row_groups_in_order(folder: Path, groups: list[int], parts: int, part: int) -> None:
    """In some parts all that is read; in parts of a few bytes, of which each takes a reader, only which groups are read."""
    path = folder / "a.parquet"
    with parquet.ParquetWriter(path, SCHEMA) as writer:
        for number, rows in enumerate(groups):
            values = {"a": [number * 100 + row for row in range(rows)], "b": ["x" * row for row in range(rows)]}
            writer.write_table(pa.table(values, schema=SCHEMA), row_group_size=max(1, rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivered_bytes, "PART_BYTES", 1 << 30)
        whole = read_rows(PARQUET, path)
        size = path.stat().st_size
        patch.setattr(delivered_bytes, "PART_BYTES", max(1, size // parts))
        assert read_rows(PARQUET, path) == whole
    starts = range(0, size, part)
    spans = [FileSpan(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]
    with parquet.ParquetFile(path) as file:
        found = [group for span in spans for group in list_row_groups(file, size, span)]
        assert found == list(range(file.num_row_groups))
    assert [row["a"] for row in whole] == [number * 100 + row for number, rows in enumerate(groups) for row in range(rows)]


def test_a_batch_takes_no_more_bytes_than_it_can_hold_even_where_nothing_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MOST_BYTES", 10)
    files = [{"size": size} for size in (4, 4, 4, 20, 1, None)]
    assert [[one["size"] for one in group] for group in discovery.group_into_micro_batches(SOURCE, files)] == [
        [4, 4],
        [4],
        [20],
        [1, None],
    ]
    declared = Source(name="s", max_bytes_per_trigger=100)
    assert len(discovery.group_into_micro_batches(declared, files)) == 1


def test_no_source_can_have_a_column_that_is_called_like_those_of_parts() -> None:
    assert is_reserved_column(workers.PART.name) and is_reserved_column("_sluice_before")


def test_a_worker_stages_the_records_of_its_share_and_says_what_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, cut = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    good.write_text('{"a":1}\nno object\n{"a":2,"new":[1]}\n{"b":"x"}\n')
    cut.write_bytes(b'{"a":3}\n' + b"\xff\n")
    monkeypatch.setattr(delivered_bytes, "PART_BYTES", 30)
    monkeypatch.setattr(workers, "A_TASK", 60)
    items = [examine(good), replace(examine(cut), delivery=replace(examine(cut).delivery, number=8))]
    gone = replace(examine(good), delivery=replace(examine(good).delivery, number=9, path=tmp_path / "none.jsonl"), text_bytes=1)
    bins = workers.balance_worker_bins(SOURCE, [*items, gone])
    numbers = [pa.RecordBatch.from_pydict({"id": [number]}) for number in range(len(bins))]
    said = [row for one in workers.read_worker_share(SOURCE, bins, SCHEMA, tmp_path, numbers) for row in one.to_pylist()]
    staged = [row for file in sorted(tmp_path.glob("*.parquet")) for row in parquet.read_table(file).to_pylist()]
    assert sum(row["read"] for row in said) == len(staged) == 4
    assert sum(row["problems"] for row in said) == 1
    assert {row["_delivery"] for row in staged} == {7}
    assert {(row[workers.PART.name], row["_row"], row["a"]) for row in staged} == {
        (0, 0, 1),
        (0, 1, None),
        (0, 2, 2),
        (1, 0, None),
    }
    assert [workers.deserialize_new_fields(row["news"]).names for row in said if row["news"]] == [["new"]]
    assert {row["_delivery"]: row["unreached"] for row in said if row["refused"]} == {8: False, 9: True}
