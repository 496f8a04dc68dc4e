"""Reading Parquet, text and binary files: each value exactly, in its column or in what is rescued."""

from __future__ import annotations

import bz2
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluice.declare import Source
from sluice.ingest import formats
from sluice.ingest.files.delivered_bytes import UnreadableFile
from sluice.ingest.formats import ParsedBlock, columnar
from sluice.ingest.formats import parquet as packed
from sluice.ingest.values import types

SOURCE = Source(name="s", format="parquet")
RESCUE = Source(name="s", format="parquet", schema_evolution="rescue")
MOMENT = pa.timestamp("us", tz="UTC")

Read = Callable[..., ParsedBlock]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The records of a table that was written as Parquet, as one block."""

    def read(table: pa.Table, schema: pa.Schema, source: Source = SOURCE, **path_values: str) -> ParsedBlock:
        path = tmp_path / "a.parquet"
        parquet.write_table(table, path, store_schema=True)
        blocks = list(formats.read_file_records(source, path, schema, path_values))
        for block in blocks:
            block.rows.validate(full=True)
        return ParsedBlock(pa.concat_tables([block.rows for block in blocks]), blocks[0].news)

    return read


def rescued(block: ParsedBlock) -> list[Any]:
    return [json.loads(text) if text else None for text in block.rows["_rescued_data"].to_pylist()]


def column(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"a": pa.array(values, kind)})


def test_values_of_the_columns_own_types_stay_as_they_are(read: Read) -> None:
    table = pa.table({
        "i": pa.array([1, None], pa.int32()), "d": [0.1, float("nan")], "s": ["x", ""], "b": [b"\xff", None],
        "t": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], MOMENT), "l": [[1, 2], None], "n": [{"x": 1, "y": "z"}, None],
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), "p": pa.array([Decimal("1.20"), None], pa.decimal128(5, 2)),
    })  # fmt: skip
    block = read(table, table.schema)
    assert block.rows.select(table.schema.names).to_pydict()["m"] == [[("k", 1)], None]
    assert str(block.rows.drop(["_rescued_data", "_problem", "_record"]).to_pydict()) == str(table.to_pydict())
    assert rescued(block) == [None, None] and block.news == pa.struct([])


@pytest.mark.parametrize(
    "values, kind, wanted, kept, rest",
    [
        ([1, 300, -1], pa.int32(), pa.int8(), [1, None, -1], [None, 300, None]),
        ([1, 2], pa.int8(), pa.int64(), [1, 2], [None, None]),
        ([1, 2**53 + 1], pa.int64(), pa.float64(), [1.0, None], [None, 2**53 + 1]),
        ([1, 2], pa.int64(), pa.decimal128(3, 1), [Decimal("1.0"), Decimal("2.0")], [None, None]),
        ([Decimal("1.25"), Decimal("1.20")], pa.decimal128(5, 2), pa.decimal128(5, 1), [None, Decimal("1.2")], [1.25, None]),
        ([1.0, 2.5], pa.float64(), pa.int64(), [None, None], [1.0, 2.5]),
        ([0.1, 0.5, float("nan")], pa.float64(), pa.float32(), [None, 0.5, "nan"], [0.1, None, None]),
        ([float("inf"), float("nan")], pa.float64(), pa.string(), [None, None], ["Infinity", "NaN"]),
        ([1, 2**64 - 1], pa.uint64(), pa.int64(), [1, None], [None, 2**64 - 1]),
        (["1", "x"], pa.string(), pa.int64(), [None, None], ["1", "x"]),
        (["2026-01-02", "x"], pa.string(), pa.date32(), [date(2026, 1, 2), None], [None, "x"]),
        ([date(2026, 1, 2)], pa.date32(), MOMENT, [datetime(2026, 1, 2, tzinfo=UTC)], [None]),
        ([datetime(2026, 1, 2)], pa.timestamp("ms"), pa.date32(), [None], ["2026-01-02T00:00:00Z"]),
        ([datetime(2026, 1, 2)], pa.timestamp("ms"), MOMENT, [datetime(2026, 1, 2, tzinfo=UTC)], [None]),
        ([1000, 1001], pa.timestamp("ns"), MOMENT,
         [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None], [None, "1970-01-01 00:00:00.000001001"]),
        ([1, 2], pa.int64(), pa.string(), [None, None], [1, 2]),
        ([True], pa.bool_(), pa.int64(), [None], [True]),
        ([b"\xff"], pa.binary(), pa.string(), [None], ["/w=="]),
        ([[1, None], [300]], pa.list_(pa.int64()), pa.list_(pa.int8()), [[1, None], None], [None, [300]]),
        ([[{"x": 1}], [{"x": 2}]], pa.list_(pa.struct([("x", pa.int64())])), pa.list_(pa.struct([("x", pa.int8()), ("y", pa.string())])),
         [[{"x": 1, "y": None}], [{"x": 2, "y": None}]], [None, None]),
        ([[("k", 300)], [("k", 1)]], pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), [None, [("k", 1)]], [{"k": 300}, None]),
    ],
)  # fmt: skip
def test_other_values_are_converted_exactly_or_rescued(
    read: Read, values: list[Any], kind: pa.DataType, wanted: pa.DataType, kept: list[Any], rest: list[Any]
) -> None:
    block = read(column(values, kind), pa.schema([("a", wanted)]))
    assert block.rows.schema.field("a").type == wanted
    assert [str(value) for value in block.rows["a"].to_pylist()] == [str(value) for value in kept]
    assert [(row or {}).get("a") for row in rescued(block)] == rest


def test_all_columns_as_text_take_any_value(read: Read) -> None:
    table = pa.table({"a": [1], "b": [0.1], "c": [True], "d": [date(2026, 1, 2)], "e": [[1, 2]], "f": [{"x": "y"}], "g": ["z"]})
    source = Source(name="s", format="parquet", infer_types=False)
    block = read(table, pa.schema([(name, pa.string()) for name in table.schema.names]), source)
    assert list(block.rows.to_pylist()[0].values())[:7] == ["1", "0.1", "true", "2026-01-02", "[1,2]", '{"x":"y"}', "z"]
    assert rescued(block) == [None]


def test_unknown_columns_are_rescued_and_told_with_their_own_types(read: Read) -> None:
    table = pa.table({
        "a": [1], "i": pa.array([2], pa.int8()), "u": pa.array([2**64 - 1], pa.uint64()), "f": [1.5], "t": [time(10)],
        "n": [datetime(2026, 1, 2)], "s": pa.array(["x"]).dictionary_encode(), "l": pa.array([["y"]], pa.large_list(pa.large_string())),
    })  # fmt: skip
    block = read(table, pa.schema([("a", pa.int64())]))
    assert rescued(block) == [
        {"i": 2, "u": 2**64 - 1, "f": 1.5, "t": "10:00:00.000000", "n": "2026-01-02T00:00:00Z", "s": "x", "l": ["y"]}
    ]
    assert {field.name: field.type for field in block.news} == {
        "i": pa.int8(), "u": pa.decimal128(20, 0), "f": pa.float64(), "t": pa.string(), "n": MOMENT, "s": pa.string(),
        "l": pa.list_(pa.string()),
    }  # fmt: skip
    unwanted = read(
        table, pa.schema([("a", pa.int64())]), Source(name="s", format="parquet", schema="a BIGINT", schema_evolution="none")
    )
    assert rescued(unwanted) == [None] and unwanted.news == pa.struct([])


def test_of_a_struct_what_fits_stays_and_the_rest_is_rescued_in_its_place(read: Read) -> None:
    table = pa.table({"a": [{"x": 1, "in": {"p": 300, "q": "r"}, "more": [1]}, None, {"x": 2, "in": None, "more": None}]})
    schema = pa.schema([
        ("a", pa.struct([("x", pa.int64()), ("in", pa.struct([("p", pa.int8()), ("q", pa.string())])), ("z", pa.string())]))
    ])
    block = read(table, schema)
    assert block.rows["a"].to_pylist() == [
        {"x": 1, "in": {"p": None, "q": "r"}, "z": None},
        None,
        {"x": 2, "in": None, "z": None},
    ]
    assert rescued(block) == [{"a": {"in": {"p": 300}, "more": [1]}}, None, None]
    inner = pa.struct([("in", pa.struct([("p", pa.int64())])), ("more", pa.list_(pa.int64()))])
    assert block.news == pa.struct([("a", inner)])


def test_names_are_those_of_a_table_and_of_the_table(read: Read) -> None:
    table = pa.Table.from_arrays([pa.array([number]) for number in range(4)], ["ID", "full name", "id", "_row"])
    block = read(table, pa.schema([("id", pa.int64())]), RESCUE, day="2026-01-02")
    assert block.rows["id"].to_pylist() == [0]
    assert rescued(block) == [{"full_name": 1, "_field_3": 2, "_row": 3, "day": "2026-01-02"}]


def test_many_rows_come_in_blocks_in_order(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(300_000)), "s": [str(number) * 5 for number in range(300_000)]})
    parquet.write_table(table, tmp_path / "a", row_group_size=130_000)
    blocks = list(formats.read_file_records(SOURCE, tmp_path / "a", table.schema, {}))
    assert len(blocks) > 3 and max(block.rows.nbytes for block in blocks) < 12_000_000
    assert [value for block in blocks for value in block.rows["a"].to_pylist()] == table["a"].to_pylist()
    assert [value for block in blocks for value in block.rows["s"].to_pylist()] == table["s"].to_pylist()


def test_what_stands_once_for_many_rows_is_unpacked_in_parts(tmp_path: Path) -> None:
    texts = pa.array(["x" * 1_000_000, None]).dictionary_encode().take(pa.array([0, 1] * 100))
    parquet.write_table(pa.table({"s": texts}), tmp_path / "a")
    blocks = list(formats.read_file_records(SOURCE, tmp_path / "a", pa.schema([("s", pa.string())]), {}))
    assert sum(block.rows.num_rows for block in blocks) == 200 and max(block.rows.nbytes for block in blocks) < 10_000_000
    assert packed.measure_parquet_file(SOURCE, tmp_path / "a")[1] > 100_000_000


def test_a_file_compressed_as_a_whole_is_read(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "a")
    (tmp_path / "a.bz2").write_bytes(bz2.compress((tmp_path / "a").read_bytes()))
    (block,) = formats.read_file_records(SOURCE, tmp_path / "a.bz2", pa.schema([("a", pa.int64())]), {})
    assert block.rows["a"].to_pylist() == [1]


def test_a_file_that_is_cut_off_says_so_when_it_is_read(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "a")
    (tmp_path / "cut").write_bytes((tmp_path / "a").read_bytes()[:-3])
    with pytest.raises(UnreadableFile, match=r"^the Parquet file is cut off$"):
        list(formats.read_file_records(SOURCE, tmp_path / "cut", pa.schema([]), {}))


def test_instants_that_nanoseconds_do_not_hold_are_those_that_came_also_in_a_file_without_some_rows(tmp_path: Path) -> None:
    """INT96, as older writers store instants, holds each day; Arrow reads it as nanoseconds unless told otherwise."""
    came = [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)]
    path, rest = tmp_path / "a.parquet", tmp_path / "b.parquet"
    parquet.write_table(column(came, pa.timestamp("us")), path, use_deprecated_int96_timestamps=True)
    with rest.open("wb") as target:
        formats.write_remaining_records(SOURCE, path, path.name, frozenset({1}), {}, target)
    for file, expected in ((path, came), (rest, [came[0], came[2]])):
        (block,) = formats.read_file_records(SOURCE, file, pa.schema([("a", pa.timestamp("us"))]), {})
        assert block.rows["a"].to_pylist() == expected and block.rows["_rescued_data"].null_count == len(expected)


def test_instants_outside_the_years_that_python_has_are_kept_as_text(read: Read) -> None:
    """9999-12-31 in New York, the usual end of time, is in the year 10000 in UTC."""
    late = pa.array([253402318799000000, 0, None], pa.int64()).cast(MOMENT)
    early = pa.array([-1_000_000, 0, None], pa.int32()).cast(pa.date32())
    table = pa.table({"a": late, "b": early, "c": pa.StructArray.from_arrays([late], names=["x"])})
    new = read(table, pa.schema([]))
    assert [rows and rows.get("a") for rows in rescued(new)] == ["10000-01-01 04:59:59.000000Z", "1970-01-01T00:00:00Z", None]
    assert [rows and rows.get("b") for rows in rescued(new)] == ["-0768-02-04", "1970-01-01", None]
    assert rescued(new)[0]["c"] == {"x": "10000-01-01 04:59:59.000000Z"}
    other = read(table.select(["a"]), pa.schema([("a", pa.date32())]))
    assert rescued(other)[0] == {"a": "10000-01-01 04:59:59.000000Z"}


MICROSECONDS = pa.array([1_123_456_000, 0, None, 5_000], pa.timestamp("ns"))
WITH_NANOSECONDS = pa.array([1_123_456_000, 0, None, 1], pa.timestamp("ns"))
"""The same, and an instant that microseconds do not hold."""


@pytest.mark.parametrize(
    "nest",
    [
        lambda moments: pa.StructArray.from_arrays([moments, pa.array(["1.123456000"] * 4)], names=["t", "s"]),
        lambda moments: pa.StructArray.from_arrays([moments], names=["t"], mask=pa.array([False, True, False, False])),
        lambda moments: pa.ListArray.from_arrays([0, 1, 3, 3, 4], moments, mask=pa.array([False, False, True, False])),
        lambda moments: pa.LargeListArray.from_arrays([0, 1, 3, 3, 4], moments),
        lambda moments: pa.FixedSizeListArray.from_arrays(moments, 1, mask=pa.array([False, True, False, False])),
        lambda moments: pa.array(
            [[("k", value)] if value.is_valid else None for value in moments], pa.map_(pa.string(), moments.type)
        ),
        lambda moments: pa.ListArray.from_arrays([0, 1, 2, 3, 4], pa.StructArray.from_arrays([moments], names=["t"])),
        lambda moments: pa.StructArray.from_arrays([moments.dictionary_encode()], names=["t"]),
    ],
    ids=["struct", "struct_with_null", "list_with_null", "large_list", "fixed_size_list", "map", "structs_in_list", "dictionary"],
)
@pytest.mark.parametrize("start", [0, 1])
def test_an_instant_with_nanoseconds_makes_no_other_a_misfit(nest: Callable[[pa.Array], pa.Array], start: int) -> None:
    alone, beside = nest(MICROSECONDS).slice(start), nest(WITH_NANOSECONDS).slice(start)
    plain = columnar.cast_to_table_type(alone)
    values = columnar._ArrowValues.of_delivered(SOURCE, beside)
    assert values.whole()[1] == plain.type
    found = values.fitted(plain.type)
    found.column.validate(full=True)
    assert found.column.to_pylist()[:-1] == plain.to_pylist()[:-1]
    assert found.rest is not None and [text is None for text in found.rest.to_pylist()] == [True] * (3 - start) + [False]
    assert "00:00:00.000000001" in found.rest.to_pylist()[-1]


@pytest.mark.parametrize(
    "nest",
    [
        lambda moments: moments,
        lambda moments: pa.StructArray.from_arrays([moments], names=["t"]),
        lambda moments: pa.ListArray.from_arrays([0, 1, 2], moments),
        lambda moments: pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([moments], names=["t"])),
    ],
    ids=["column", "struct", "list", "structs_in_list"],
)
@pytest.mark.parametrize("rows", [1, 2], ids=["row_groups", "one_row_group"])
def test_the_column_of_an_instant_with_nanoseconds_is_one_of_instants(
    tmp_path: Path, nest: Callable[[pa.Array], pa.Array], rows: int
) -> None:
    moments = nest(pa.array([1_700_000_000_123_456_789, 1_700_000_000_123_456_000], pa.timestamp("ns")))
    parquet.write_table(pa.table({"at": moments}), tmp_path / "a", row_group_size=rows)
    first = list(formats.read_file_records(SOURCE, tmp_path / "a", pa.schema([]), {}))
    news: pa.DataType = pa.struct([])
    for block in first:
        news = types.merge_types(news, block.news)
    schema = types.grow_schema(pa.schema([]), news, SOURCE)
    assert schema.field("at").type == nest(pa.array([0, 0], MOMENT)).type
    blocks = list(formats.read_file_records(SOURCE, tmp_path / "a", schema, {}))
    assert [text is None for block in blocks for text in block.rows["_rescued_data"].to_pylist()] == [False, True]
    kept = pa.concat_arrays([chunk for block in blocks for chunk in block.rows["at"].chunks])
    assert kept[1].as_py() == nest(moments_of([1_700_000_000_123_456] * 2))[1].as_py()
    for block in blocks:
        news = types.merge_types(news, block.news)
    assert types.grow_schema(schema, news, Source(name="s", format="parquet", widen_types=True)) == schema


def moments_of(microseconds: list[int]) -> pa.Array:
    return pa.array(microseconds, MOMENT)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Europe/Amsterdam", "UTC"])
def test_an_instant_before_standard_time_is_the_same_beside_one_with_nanoseconds(read: Read, zone: str) -> None:
    year_1890 = -2_524_521_600
    moments = pa.array([year_1890 * 10**9, 1], pa.int64()).cast(pa.timestamp("ns", zone))
    block = read(pa.table({"a": moments}), pa.schema([("a", MOMENT)]))
    assert block.rows["a"].cast(pa.int64()).to_pylist() == [year_1890 * 10**6, None]
    assert rescued(block) == [None, {"a": "1970-01-01 00:00:00.000000001Z"}]


def test_ids_and_documents_below_the_top_level_are_bytes_and_text(tmp_path: Path) -> None:
    """UUID and JSON are types of Parquet for which Arrow has types of its own."""
    ids = pa.array([UUID(int=1).bytes], pa.uuid())
    table = pa.table({
        "s": pa.StructArray.from_arrays([ids, pa.array(["{}"], pa.json_())], names=["id", "doc"]),
        "l": pa.ListArray.from_arrays([0, 1], ids),
    })
    for kept in (True, False):
        path = tmp_path / f"{kept}.parquet"
        parquet.write_table(table, path, store_schema=kept)
        (block,) = formats.read_file_records(SOURCE, path, pa.schema([]), {})
        number = "AAAAAAAAAAAAAAAAAAAAAQ=="
        assert rescued(block) == [{"s": {"id": number, "doc": "{}"}, "l": [number]}]
        assert block.news.field("s").type.field("id").type == pa.binary()
        schema = pa.schema([("s", pa.struct([("id", pa.binary()), ("doc", pa.string())])), ("l", pa.list_(pa.binary()))])
        (block,) = formats.read_file_records(SOURCE, path, schema, {})
        assert block.rows.to_pylist()[0]["s"] == {"id": UUID(int=1).bytes, "doc": "{}"} and rescued(block) == [None]


def test_a_damaged_name_of_a_column_is_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"colxyz": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"colxyz", b"col\xff\xfez"))
    with pytest.raises(UnreadableFile, match="the Parquet file is damaged"):
        list(formats.read_file_records(SOURCE, path, pa.schema([("colxyz", pa.int64())]), {}))


def test_of_members_of_a_struct_with_one_name_the_first_is_kept_and_the_others_are_rescued(read: Read) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
    block = read(pa.table({"s": twice}), pa.schema([("s", pa.struct([("a", pa.int64())]))]), RESCUE)
    assert block.rows["s"].to_pylist() == [{"a": 1}, {"a": 2}] and rescued(block) == [{"s": {"a": 3}}, {"s": {"a": 4}}]


def test_text_that_the_end_of_a_file_completes_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"abc\ncaf+AOk")
    blocks = formats.read_file_records(
        Source(name="s", format="text", encoding="utf-7"), path, pa.schema([("value", pa.string())]), {}
    )
    assert [text for block in blocks for text in block.rows["value"].to_pylist()] == ["abc", "caf\xe9"]


def test_a_line_of_text_is_a_record_and_its_end_no_part_of_it(tmp_path: Path) -> None:
    source = Source(name="s", format="text")
    (tmp_path / "a").write_bytes("\ufeff{no: json}\r\n\n caf\u00e9\rx \nlast".encode())
    (block,) = formats.read_file_records(
        source, tmp_path / "a", pa.schema([("value", pa.string()), ("day", pa.date32())]), {"day": "2026-01-02"}
    )
    assert block.rows["value"].to_pylist() == ["{no: json}", "", " caf\u00e9\rx ", "last"]
    assert block.rows["day"].to_pylist() == [date(2026, 1, 2)] * 4
    (block,) = formats.read_file_records(source, tmp_path / "a", pa.schema([]), {})
    assert block.news == pa.struct([("value", pa.string())]) and rescued(block)[3] == {"value": "last"}


def test_a_binary_file_is_a_record(tmp_path: Path) -> None:
    source = Source(name="s", format="binary")
    (tmp_path / "a").write_bytes(b"\0\xff\n")
    (block,) = formats.read_file_records(source, tmp_path / "a", pa.schema([("content", pa.binary())]), {})
    assert block.rows.to_pylist() == [{"content": b"\0\xff\n", "_rescued_data": None, "_problem": None, "_record": None}]
    (block,) = formats.read_file_records(source, tmp_path / "a", pa.schema([]), {})
    assert block.news == pa.struct([("content", pa.binary())]) and rescued(block) == [{"content": "AP8K"}]
    (tmp_path / "none").write_bytes(b"")
    assert list(formats.read_file_records(source, tmp_path / "none", pa.schema([]), {})) == []
