"""Reading CSV: every cell in its column as delivered, or in what is rescued; a bad row costs no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.declare import Source
from sluice.declare.ingest.file_formats import CsvDialect
from sluice.flows.quarantine import staged_records
from sluice.ingest import formats
from sluice.ingest.deliveries.landed_file import read_file_state
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import UnreadableFile
from sluice.ingest.formats import RAGGED, csv_rows, delimited
from sluice.ingest.formats.csv_rows import BROKEN_QUOTES
from sluice.ingest.landing.rewriting import write_without_records
from sluice.ingest.reading import workers
from sluice.ingest.reading.examination import Delivery

SOURCE = Source(name="orders", format="csv")
TEXT = pa.schema([("id", pa.string()), ("name", pa.string())])
ENDS = ["_rescued_data", "_problem", "_record"]

Read = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The rows of a CSV text, without `ENDS` where these are NULL in all; news in the attribute of that name."""

    def read(text: str | bytes, schema: pa.Schema = TEXT, source: Source = SOURCE, **path_values: str) -> list[tuple[Any, ...]]:
        path = tmp_path / "a.csv"
        path.write_bytes(text.encode(source.encoding) if isinstance(text, str) else text)
        blocks = list(formats.read_file_records(source, path, schema, path_values))
        for block in blocks:
            block.rows.validate(full=True)
            assert block.rows.schema.names == [*schema.names, *ENDS]
            assert block.rows.schema.types[: len(schema)] == schema.types
        read.news = [block.news for block in blocks]  # type: ignore[attr-defined]
        rows = [tuple(row.values()) for block in blocks for row in block.rows.to_pylist()]
        return [row[:-3] for row in rows] if all(row[-3:] == (None, None, None) for row in rows) else rows

    return read


def rescued(row: tuple[Any, ...]) -> Any:
    return json.loads(row[-3]) if row[-3] else None


def test_an_empty_cell_is_null_and_a_quoted_one_an_empty_text(read: Read) -> None:
    assert read('id,name\n1,\n2,""\n,x\n') == [("1", None), ("2", ""), (None, "x")]


def test_quotes_are_doubled_and_hold_separators_and_line_ends(read: Read) -> None:
    assert read('id,name\n1,"a, ""b""\r\nc"\n2,""""\n') == [("1", 'a, "b"\r\nc'), ("2", '"')]


def test_a_quote_in_a_bare_field_stands_for_itself(read: Read) -> None:
    assert read('id,name\n5" disk,x"y\n2,"b"\n') == [('5" disk', 'x"y'), ("2", "b")]


def test_blanks_belong_to_cells_and_blank_lines_are_no_rows(read: Read) -> None:
    assert read("\n  \nid,name\n 1 , \n\n   \n\t\n2,b\n\n") == [(" 1 ", " "), ("2", "b")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_ends_a_row_and_the_last_row_needs_none(read: Read, end: str) -> None:
    assert read(end.join(["id,name", "1,a", '2,"b"'])) == [("1", "a"), ("2", "b")]
    assert read(end.join(["id,name", '1,"a"b', '2,"b"', ""])) == [
        (None, None, None, BROKEN_QUOTES, '1,"a"b'),
        ("2", "b", None, None, None),
    ]


def test_a_ragged_row_keeps_its_text_and_its_place(read: Read) -> None:
    assert read('id,name\n2,b\n3\n\n4,"c\nd",e\n5,e\n') == [
        ("2", "b", None, None, None),
        (None, None, None, RAGGED, "3"),
        (None, None, None, RAGGED, '4,"c\nd",e'),
        ("5", "e", None, None, None),
    ]


def test_wrong_quotes_cost_one_line_and_no_other_row(read: Read) -> None:
    assert read('id,name\n1,"un\n2,y\n3,"x"z\n4,"good\none"\n5,"open') == [
        (None, None, None, BROKEN_QUOTES, '1,"un'),
        ("2", "y", None, None, None),
        (None, None, None, BROKEN_QUOTES, '3,"x"z'),
        ("4", "good\none", None, None, None),
        (None, None, None, BROKEN_QUOTES, '5,"open'),
    ]


def test_header_names_are_those_of_a_table_and_of_the_table(read: Read) -> None:
    source = Source(name="orders", format="csv", schema_evolution="rescue")
    (row,) = read("\ufeffID,Name,name,full name,,_file\n6,f,g,h,i,j\n", source=source)
    assert row[:2] == ("6", "f")
    assert rescued(row) == {"_field_3": "g", "full_name": "h", "_field_5": "i", "_file": "j"}
    assert read.news == [pa.struct([("full_name", pa.string()), ("_file", pa.string())])]  # type: ignore[attr-defined]


def test_unknown_fields_are_rescued_and_told_with_the_least_type(read: Read) -> None:
    head = "id,n,x,big,zeros,flag,day,at,mixed,never"
    rows = read(
        f"{head}\n1,1,1,9007199254740993,007,true,2026-01-01,2026-01-01,1,\n2,2,2.5,1,7,false,2026-01-02,2026-01-01T10:00:00Z,a,\n"
    )
    assert rescued(rows[0]) == {
        "n": "1", "x": "1", "big": "9007199254740993", "zeros": "007", "flag": "true",
        "day": "2026-01-01", "at": "2026-01-01", "mixed": "1",
    }  # fmt: skip
    assert {field.name: str(field.type) for field in read.news[0]} == {  # type: ignore[attr-defined]
        "n": "int64", "x": "double", "big": "int64", "zeros": "string", "flag": "bool",
        "day": "date32[day]", "at": "timestamp[us, tz=UTC]", "mixed": "string", "never": "null",
    }  # fmt: skip
    read("id,n\n1,1\n", source=Source(name="orders", format="csv", infer_types=False))
    assert read.news == [pa.struct([("n", pa.string())])]  # type: ignore[attr-defined]


def test_a_source_that_wants_no_further_fields_gets_none_but_keeps_what_does_not_fit(read: Read) -> None:
    source = Source(name="orders", format="csv", schema="id INT", schema_evolution="none")
    rows = read("id,more,\nx,2,3\n1,2,3\n", pa.schema([("id", pa.int32())]), source)
    assert rows == [(None, '{"id":"x"}', None, None), (1, None, None, None)]


def test_typed_columns_take_what_says_exactly_their_value(read: Read) -> None:
    schema = pa.schema([("id", pa.int8()), ("x", pa.float64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    rows = read("id,x,day,at\n1,2.5,2026-01-02,2026-01-02T03:04:05Z\n128,NaN,2026-1-2,now\n,,,\n", schema)
    assert rows[0] == (1, 2.5, date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None, None, None)
    assert rows[1][:4] == (None, None, None, None)
    assert rescued(rows[1]) == {"id": "128", "x": "NaN", "day": "2026-1-2", "at": "now"}
    assert rows[2] == (None,) * 7
    assert read.news[0].field("id").type == pa.int64()  # type: ignore[attr-defined]


def test_a_column_that_the_file_has_not_is_null(read: Read) -> None:
    assert read("name\nb\n") == [(None, "b")]


def test_without_a_header_the_schema_names_the_fields_or_their_numbers_do(read: Read) -> None:
    declared = Source(name="orders", format="csv", header=False, schema="id STRING, name STRING")
    assert read("1,a\n2,b\n", source=declared) == [("1", "a"), ("2", "b")]
    assert read("1,a\n", pa.schema([*TEXT, ("day", pa.string())]), declared, day="x") == [("1", "a", "x")]
    free = Source(name="orders", format="csv", header=False)
    assert read("1,a\n2,b\n", pa.schema([("_c1", pa.string()), ("_c0", pa.int64())]), free) == [("a", 1), ("b", 2)]


def test_values_in_the_path_are_fields_beside_those_of_the_record(read: Read) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("hour", pa.int64())])
    rows = read("id,HOUR\n1,3\n2\n", schema, day="2026-01-02", hour="9", more="x", _file="y")
    assert rows[0][:3] == ("1", date(2026, 1, 2), 3)
    assert rescued(rows[0]) == {"hour": "9", "more": "x", "_file": "y"}
    assert rows[1] == (None, None, None, None, RAGGED, "2")
    assert read.news == [pa.struct([("more", pa.string()), ("_file", pa.string())])]  # type: ignore[attr-defined]
    assert read("id,hour\n1,3\n", pa.schema([("id", pa.string())]), HOUR="9")[0][1] == '{"hour":["3","9"]}'


@pytest.mark.parametrize("delimiter, quote", [(";", "'"), ("\t", '"'), ("|", '"'), ("\u00a7", '"'), (",", "\u2018")])
def test_any_character_separates_or_quotes(read: Read, delimiter: str, quote: str) -> None:
    source = Source(name="orders", format="csv", delimiter=delimiter, quote=quote)
    text = f"id{delimiter}name\n1{delimiter}{quote}a{delimiter}{quote * 2}b\n{quote}\n2{delimiter}\n"
    assert read(text, source=source) == [("1", f"a{delimiter}{quote}b\n"), ("2", None)]


@pytest.mark.parametrize("encoding", ["utf-16", "windows-1252"])
def test_other_encodings_are_read_as_declared(read: Read, encoding: str) -> None:
    source = Source(name="orders", format="csv", encoding=encoding)
    assert read("id,name\n1,caf\u00e9\n2\n", source=source) == [
        ("1", "caf\u00e9", None, None, None),
        (None, None, None, RAGGED, "2"),
    ]


def test_a_cell_of_30_mb_passes_and_its_neighbours_too(read: Read) -> None:
    long = "x\n" * 15_000_000
    assert read(f'id,name\n1,a\n2,"{long}"\n3,c\n') == [("1", "a"), ("2", long), ("3", "c")]


def test_a_quote_that_is_never_closed_is_not_waited_for_for_ever(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered_bytes, "LONGEST", 2_000_000)
    lines = [f"{number},text of some length\n" for number in range(200_000)]
    rows = read("".join(["id,name\n", *lines[:10], '10,"never\n', *lines[11:]]))
    assert len(rows) == len(lines)
    assert rows[10] == (None, None, None, BROKEN_QUOTES, '10,"never')
    assert [row[0] for row in rows[11:]] == [str(number) for number in range(11, len(lines))]


def test_the_first_line_of_a_file_is_read_as_its_header() -> None:
    assert delimited.read_csv_header(SOURCE, b'\n\nid,"full, name",\n1') == ("id", "full, name", "")
    with pytest.raises(UnreadableFile, match=r"^the file's fields are separated by semicolons, the source declares commas$"):
        delimited.read_csv_header(SOURCE, b"id;name\n1;a\n")
    with pytest.raises(UnreadableFile, match=r"^the first line is no header: one field of it is longer than 128 KiB$"):
        delimited.read_csv_header(SOURCE, b"i" * 200_000 + b",a\n")
    with pytest.raises(UnreadableFile, match=r"^the first line is no header: a quoted field"):
        delimited.read_csv_header(SOURCE, b'id,"name\n1,a\n')
    with pytest.raises(UnreadableFile, match=r"^the first line is longer than 1 MiB$"):
        delimited.read_csv_header(SOURCE, b"a," * (1 << 19))
    with pytest.raises(UnreadableFile, match=rf"^the first line is no header: {BROKEN_QUOTES}$"):
        delimited.read_csv_header(SOURCE, b'"a"b,1\n' + b"x,y\n" * 300_000)
    with pytest.raises(UnreadableFile, match=r"^the first line is no header: a quoted field of it is not closed within 1 MiB$"):
        delimited.read_csv_header(SOURCE, b'"a,1\n' + b"x,y\n" * 300_000)
    with pytest.raises(UnreadableFile, match=r"^the first line is longer than 1 MiB$"):
        delimited.read_csv_header(SOURCE, b'"a' + b"x" * (1 << 20) + b'",b\n')


@pytest.mark.parametrize("first", ['"a"b,1', '"a,1', '"a\n,1'], ids=["text_after_quote", "not_closed", "over_two_lines"])
@pytest.mark.parametrize("others", [3, 300_000], ids=["small", "larger_than_1_mib"])
def test_without_a_header_a_first_row_with_broken_quotes_is_set_aside_like_any_other(
    read: Read, tmp_path: Path, first: str, others: int
) -> None:
    source = Source(name="orders", format="csv", header=False, schema="id STRING, name STRING")
    text = f"{first}\n" + "x,y\n" * others
    broken = first.split("\n")
    rows = read(text, source=source)
    assert rows[0] == (None, None, None, BROKEN_QUOTES, broken[0]) and len(rows) == len(broken) + others
    assert {row[:2] for row in rows[len(broken) :]} == {("x", "y")}
    found = formats.examine_file_content(source, tmp_path / "a.csv", lambda _: None)
    assert not found.empty and found.text_bytes == len(text)
    kept = "".join(csv_rows.filter_csv_rows(source, text, frozenset({0}), {}))
    assert kept == text.split("\n", 1)[1]


def test_without_a_header_or_declared_columns_a_first_row_with_broken_quotes_says_so(read: Read) -> None:
    source = Source(name="orders", format="csv", header=False)
    for others in (3, 300_000):
        with pytest.raises(UnreadableFile, match=rf"^{BROKEN_QUOTES}$"):
            read('"a"b,1\n' + "x,y\n" * others, source=source)


def test_rows_are_the_same_one_by_one_as_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'1,"a ""b"""\n\n2\n   \n3,"c\nd",e\n5" x,\n6,""\n7,g'

    def rows() -> list[Any]:
        found = list(delimited.parse_csv_rows(SOURCE.dialect, iter([text]), 2))
        columns = [[value for rows in found for value in rows.columns[number].to_pylist()] for number in (0, 1)]
        return [columns, [problem for rows in found for problem in rows.problems.values()]]

    quick = rows()
    monkeypatch.setattr(csv_rows, "find_clean_rows_end", lambda *_: (0, True))
    assert rows() == quick
    assert quick[0][0] == ["1", None, None, '5" x', "6", "7"]


@pytest.mark.parametrize("names", [("id", "name"), ("a;b", "c"), ("", "x"), ('a "b"', "c\nd")])
def test_the_names_of_a_header_are_kept_as_a_row_that_is_read_again(names: tuple[str, ...]) -> None:
    dialect = Source(name="orders", format="csv", delimiter=";").dialect
    kept = csv_rows.format_csv_header(dialect, names)
    assert csv_rows.parse_csv_header(dialect, f"{kept}\n") == names
    assert names != ("id", "name") or kept == "id;name"


OTHER_OPTIONS = {"delimiter": ";", "quote": "'", "header": False, "encoding": "latin-1"}


@pytest.mark.parametrize("option", [one.name for one in fields(CsvDialect)])
def test_with_each_option_a_file_is_read_rewritten_and_made_of_a_record_again(option: str, read: Read, tmp_path: Path) -> None:
    """An option that is added is heard wherever a file begins: see `CsvFileStart`."""
    source = Source(name="orders", format="csv", **{option: OTHER_OPTIONS[option]})
    dialect, columns = source.dialect, ["id", "name"] if source.header else ["_c0", "_c1"]
    schema, rows = pa.schema([(name, pa.string()) for name in columns]), [("1", "é"), ("2", "a;b,'\"\n"), ("3", None)]
    header = csv_rows.format_csv_header(dialect, columns)
    start = csv_rows.format_csv_file_start(dialect, header)
    lines = [csv_rows.format_csv_row(dialect, row) for row in rows]
    text = start + "".join(f"{line}\n" for line in lines)
    assert read(text, schema, source) == rows
    kept = "".join(csv_rows.filter_csv_rows(source, text, frozenset({0, 1}), {}))
    assert kept == f"{start}{lines[2]}\n" and read(kept, schema, source) == rows[2:]
    record = staged_records.QuarantinedRecord(1, 2, "a.csv", lines[1], header if source.header else None)
    (staged,) = staged_records.stage_records(source, [record], tmp_path).examined
    assert list(staged.header) == (columns if source.header else [])
    assert read((tmp_path / "0").read_bytes(), schema, source) == rows[1:2]


def test_a_record_whose_header_is_not_known_is_no_row_of_the_table(read: Read, tmp_path: Path) -> None:
    staged_records.stage_records(SOURCE, [staged_records.QuarantinedRecord(1, 2, "a.csv", "7,x")], tmp_path)
    (row,) = read((tmp_path / "0").read_bytes())
    assert row[:2] == (None, None) and row[-2:] == (RAGGED, "7,x")


def test_a_row_that_is_set_aside_says_whose_it_is_where_its_field_is_there(read: Read) -> None:
    for header in ("id,name", "id,Name"):
        rows = read(f"{header}\n7\n8,b,c\n9,d\n", source=Source(name="orders", format="csv", subject="name", infer_types=False))
        assert [(rescued(row), row[-1]) for row in rows] == [(None, "7"), ({"name": "b"}, "8,b,c"), (None, None)]


@pytest.mark.parametrize("text", ['1,x\n"1",', '1,x\n"1",\n', "1,x\n1,"])
def test_an_empty_field_at_the_end_is_null_as_any_other(text: str, read: Read) -> None:
    source = Source(name="orders", format="csv", header=False, schema="id STRING, name STRING")
    assert read(text, pa.schema([("id", pa.string()), ("name", pa.string())]), source) == [("1", "x"), ("1", None)]


@pytest.mark.parametrize(("delimiter", "blank"), [(",", " "), ("\t", "\t")])
def test_rows_have_the_numbers_that_the_reader_gives_them(delimiter: str, blank: str, read: Read) -> None:
    """The declared schema says how many fields a row has, and so whether a line of blanks is one; not the first row, which may be ragged."""
    source = Source(name="orders", format="csv", header=False, delimiter=delimiter, schema="id STRING, name STRING")
    text, schema = f"oops\n{blank}\n1{delimiter}ann\n2{delimiter}bob\n", pa.schema([("id", pa.string()), ("name", pa.string())])
    rows = [row[:2] for row in read(text, schema, source)]
    assert ("2", "bob") in rows
    for number in range(len(rows)):
        left = "".join(csv_rows.filter_csv_rows(source, text, frozenset({number}), {}))
        assert [row[:2] for row in read(left, schema, source)] == rows[:number] + rows[number + 1 :], number


def test_a_column_that_the_path_gives_is_no_field_of_a_row_that_an_erasure_counts(tmp_path: Path) -> None:
    source = Source(name="orders", format="csv", header=False, schema="id STRING, day STRING")
    path, schema, rest = tmp_path / "day=1" / "a.csv", pa.schema([("id", pa.string()), ("day", pa.string())]), tmp_path / "rest"
    path.parent.mkdir()
    path.write_text("ann\n \nbob\n")
    read = [
        row for block in formats.read_file_records(source, path, schema, {"day": "1"}) for row in block.rows["id"].to_pylist()
    ]
    assert read == ["ann", " ", "bob"]
    with rest.open("wb") as target:
        formats.write_remaining_records(source, path, "day=1/a.csv", frozenset({2}), {}, target)
    assert rest.read_text() == "ann\n \n"


DATED = Source(name="orders", format="csv", header=False, schema="date DATE, id STRING, name STRING", subject="id")
DATED_COLUMNS = pa.schema([("date", pa.date32()), ("id", pa.string()), ("name", pa.string()), ("region", pa.string())])


def _read_as_delivered(tmp_path: Path, file: str, text: str, source: Source = DATED) -> list[tuple[Any, ...]]:
    path = tmp_path / "env=prod" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    blocks = list(workers.read_file_blocks(source, workers.LocatedDelivery(1, file, str(path)), DATED_COLUMNS))
    rows = [row for block in blocks for row in block.rows.to_pylist()]
    return [(row["date"], row["id"], row["name"], row["_problem"]) for row in rows]


def test_a_column_that_came_later_is_no_field_of_a_file_without_a_header(tmp_path: Path) -> None:
    assert _read_as_delivered(tmp_path, "a.csv", "2026-01-01,1,q\n") == [(date(2026, 1, 1), "1", "q", None)]


def test_a_folder_without_a_value_names_a_column_as_any_other(tmp_path: Path) -> None:
    assert _read_as_delivered(tmp_path, "Date=2026-01-01/a.csv", "1,q\n") == [(date(2026, 1, 1), "1", "q", None)]
    assert _read_as_delivered(tmp_path, "date=__HIVE_DEFAULT_PARTITION__/a.csv", "1,q\n") == [(None, "1", "q", None)]


def test_a_row_outside_such_folders_is_not_guessed_to_lack_the_column_of_the_path(tmp_path: Path) -> None:
    rows = _read_as_delivered(tmp_path, "a.csv", "1,q\n2026-01-01,2,r\n")
    assert rows == [(None, None, None, RAGGED), (date(2026, 1, 1), "2", "r", None)]


@pytest.mark.parametrize("folder", ["", "date=2026-01-01/", "date=__HIVE_DEFAULT_PARTITION__/"])
def test_an_erasure_counts_and_names_the_fields_of_a_file_without_a_header_as_its_reader(folder: str, tmp_path: Path) -> None:
    """Also if a folder above the source's own has such a name."""
    source = replace(DATED, schema="date DATE, env STRING, id STRING")
    start = "" if folder else "2026-01-01,"
    file, row = f"{folder}a.csv", f"{start}x,ann\n"
    path = tmp_path / "env=prod" / file
    path.parent.mkdir(parents=True)
    path.write_text("oops\n" + row * 2)
    write_without_records(source, path, file, {2}, tmp_path / "rest", {1: {"id"}})
    assert (tmp_path / "rest").read_text() == f"oops\n{start}x,\n"


def test_a_staged_file_has_the_time_of_its_row_even_before_1970(tmp_path: Path) -> None:
    at = datetime(1969, 12, 31, 23, 59, 58, 500_000, UTC)
    staged = staged_records.stage_file(
        Delivery(1, "orders", "a.csv", "delivered", tmp_path / "a.csv", 1, at, None), b"x", tmp_path
    )
    assert read_file_state(staged.path).modified_at == at
