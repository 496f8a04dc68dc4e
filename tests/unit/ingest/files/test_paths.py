"""Values that stand in a file's path."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluice.declare import Source
from sluice.ingest.files import paths
from sluice.ingest.files.paths import parse_path_values
from sluice.ingest.reading import workers


def test_folders_with_an_equals_sign_are_values() -> None:
    assert parse_path_values("date=2026-11-20/hour=07/a=b.json") == {"date": "2026-11-20", "hour": "07"}
    assert parse_path_values("a.json") == {}
    assert parse_path_values("2026/=x/plain/a.json") == {}


def test_values_are_decoded_and_equals_signs_and_blanks_belong_to_them() -> None:
    assert parse_path_values("where=a%2Fb%20c/full%20name=%C3%A9=1+1/a") == {
        "where": "a/b c",
        "full name": "\u00e9=1+1",
    }


def test_an_empty_value_is_one_and_hives_sign_for_none_is_none() -> None:
    assert parse_path_values("a=/b=__HIVE_DEFAULT_PARTITION__/c") == {"a": "", "b": None}


def test_of_a_name_that_comes_twice_the_inner_folder_counts() -> None:
    assert parse_path_values("a=1/a=2/f") == {"a": "2"}
    assert parse_path_values("a=1/a=__HIVE_DEFAULT_PARTITION__/f") == {"a": None}


@pytest.mark.parametrize(
    ("columns", "date_in_path", "rescued"),
    [
        ("id BIGINT", "%Y-%m-%d", None),
        ("id BIGINT", None, '{"date":"2026-11-20"}'),
        ("id BIGINT, date DATE", "%Y-%m-%d", None),
    ],
)
def test_a_date_that_the_source_takes_from_the_path_is_not_rescued_into_every_record(
    tmp_path: Path, columns: str, date_in_path: str | None, rescued: str | None
) -> None:
    file = "shop=7/date=2026-11-20/a.json"
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text('{"id": 1}\n{"id": 2}\n')
    source = Source(name="sales", format="json", schema=f"{columns}, shop BIGINT", date_in_path=date_in_path)
    there = pa.schema([("id", pa.int64()), ("shop", pa.int64()), *([("date", pa.date32())] if "DATE" in columns else [])])
    [block] = workers.read_delivery_blocks(source, workers.LocatedDelivery(1, file, str(tmp_path / file)), there)
    assert block.rows["shop"].to_pylist() == [7, 7]
    assert [text and json.loads(text) for text in block.rows["_rescued_data"].to_pylist()] == [
        rescued and json.loads(rescued)
    ] * 2
    if "date" in block.rows.column_names:
        assert block.rows["date"].to_pylist() == [date(2026, 11, 20)] * 2


def test_only_the_folders_in_which_the_date_stands_are_its_own() -> None:
    source = Source(name="sales", format="json", date_in_path="year=%Y/month=%m/day=%d")
    assert paths.find_date_folders(source, "at=2025/year=2026/month=11/day=20/hour=07/a.json") == {
        "year=2026",
        "month=11",
        "day=20",
    }
    assert paths.find_date_folders(source, "year=2026/month=13/day=20/a.json") == set()
    assert paths.find_date_folders(Source(name="sales", format="json", date_in_path="%Y%m%d"), "day=7/20261120.json") == set()


DATED = pa.schema([("id", pa.int64()), ("date", pa.date32())])
FILES: dict[str, bytes] = {
    "json": b'{"id": 1, "date": "2026-11-19"}\n{"id": 2}\n{"id": 3, "date": "2026-11-20"}\n{"id": 4, "date": "x"}\n',
    "csv": b"id,date\n1,2026-11-19\n2,\n3,2026-11-20\n4,x\n",
    "parquet": b"",
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("grows", [True, False], ids=["a column", "rescued"])
def test_a_value_in_the_path_fills_what_the_record_lacks_and_is_rescued_where_it_differs(
    tmp_path: Path, kind: str, grows: bool
) -> None:
    file = tmp_path / "date=2026-11-20" / "a"
    file.parent.mkdir()
    file.write_bytes(FILES[kind])
    if kind == "parquet":
        parquet.write_table(pa.table({"id": [1, 2, 3, 4], "date": ["2026-11-19", None, "2026-11-20", "x"]}), file)
    source = Source(name="s", format=kind, schema_evolution="add_new_columns" if grows else "rescue")
    schema = DATED if grows else pa.schema([("id", pa.int64())])
    [block] = workers.read_delivery_blocks(source, workers.LocatedDelivery(1, "date=2026-11-20/a", str(file)), schema)
    rescued = [text and json.loads(text).get("date") for text in block.rows["_rescued_data"].to_pylist()]
    if grows:
        assert block.rows["date"].to_pylist() == [date(2026, 11, 19), date(2026, 11, 20), date(2026, 11, 20), None]
        assert rescued == ["2026-11-20", None, None, ["x", "2026-11-20"]]
    else:
        assert rescued == [["2026-11-19", "2026-11-20"], "2026-11-20", "2026-11-20", ["x", "2026-11-20"]]


@pytest.mark.parametrize("kind", FILES)
def test_an_empty_value_in_the_path_is_not_rescued_beside_the_records_own(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "date=" / "a"
    file.parent.mkdir()
    file.write_bytes(FILES[kind])
    if kind == "parquet":
        parquet.write_table(pa.table({"id": [1, 2, 3, 4], "date": ["2026-11-19", None, "2026-11-20", "x"]}), file)
    [block] = workers.read_delivery_blocks(Source(name="s", format=kind), workers.LocatedDelivery(1, "date=/a", str(file)), DATED)
    rescued = [text and json.loads(text) for text in block.rows["_rescued_data"].to_pylist()]
    assert rescued == [None, None, None, {"date": "x"}]
    assert block.rows["date"].to_pylist() == [date(2026, 11, 19), None, date(2026, 11, 20), None]
