"""Dates outside the years 1 to 9999, which Spark writes and Python cannot hold: no reader of a table's log or rows ends at one."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sluice.cli.tables.read import query_delta_table
from sluice.lake.arrow_to_python import collect_rows_with_texts, list_values_or_texts
from sluice.lake.file_statistics import (
    count_rows_in_matching_files,
    list_data_files,
    list_partition_file_sizes,
    read_highest_value,
)
from sluice.lake.layout import decide_by_files, measure_asked_questions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEAR = "2026-11-20"
FAR = ("+20201-03-04", "+10000-01-01", "-0001-01-01", "0000-01-01")
FAR_DATE = 6_658_986
"""20201-09-08 in days since 1970."""


def table_with_file_ends(path: Path, days: list[str], partitioned: bool = False) -> str:
    """A table as Spark logs it, with a file of one row for each of these days."""
    fields = [{"name": "day", "type": "date", "nullable": True, "metadata": {}}]
    fields.append({"name": "id", "type": "long", "nullable": True, "metadata": {}})
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["day"] if partitioned else [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    for number, day in enumerate(days):
        ends = {"id": number} if partitioned else {"id": number, "day": day}
        statistics = {"numRecords": 1, "minValues": ends, "maxValues": ends, "nullCount": dict.fromkeys(ends, 0)}
        added = {"path": f"{number}.parquet", "partitionValues": {"day": day} if partitioned else {}, "size": 10}
        actions.append({"add": {**added, "modificationTime": 0, "dataChange": True, "stats": json.dumps(statistics)}})
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return str(path)


@pytest.mark.parametrize("day", FAR)
def test_a_files_ends_are_unknown_where_python_has_no_such_date(tmp_path: Path, day: str) -> None:
    path = table_with_file_ends(tmp_path / "t", [NEAR, day])
    assert [one.ends.get("day") for one in list_data_files(path, ["day"])] == [(date(2026, 11, 20), date(2026, 11, 20)), None]
    assert count_rows_in_matching_files(path, {"day": [(date(2030, 1, 1), date(2031, 1, 1))]}) == 1, (
        "the file may hold such a row"
    )
    assert read_highest_value(path, "day") == (False, None), "Spark is asked"
    assert measure_asked_questions(path, ["day"])["day"] is not None
    assert decide_by_files(list_data_files(path, ["day"]), ["day"]).needed


@pytest.mark.parametrize("day", FAR)
def test_a_far_partition_keeps_its_name(tmp_path: Path, day: str) -> None:
    path = table_with_file_ends(tmp_path / "t", [NEAR, day], partitioned=True)
    assert {one.values["day"] for one in list_partition_file_sizes(path)} == {date(2026, 11, 20), day}
    assert read_highest_value(path, "day") == (False, None), "Spark is asked"
    far = list_data_files(path, ["day"])[1]
    assert (far.partition, far.ends) == ({"day": day}, {}), "a text cannot be compared with a date"


def test_rows_are_shown_with_a_text_in_place_of_a_date_that_python_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = pa.array([FAR_DATE, None, 0], pa.int32()).cast(pa.date32())
    assert list_values_or_texts(far) == ["+20201-09-08", None, date(1970, 1, 1)]
    nested = pa.StructArray.from_arrays([far], ["day"])
    assert list_values_or_texts(nested)[0] == {"day": "+20201-09-08"}
    listed = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), far)
    assert list_values_or_texts(listed) == [["+20201-09-08", None, date(1970, 1, 1)]]
    instants = pa.array([FAR_DATE * 86_400_000_000], pa.int64()).cast(pa.timestamp("us"))
    assert list_values_or_texts(instants)[0].startswith("+20201-09-08 00:00:00")
    from deltalake import write_deltalake

    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1, 2, 3]}))
    text = f"SELECT id, CAST({FAR_DATE} + id AS INT) AS day FROM t WHERE id = 1"
    assert query_delta_table(path, text) == [{"id": 1, "day": FAR_DATE + 1}]
    cast = "SELECT id, arrow_cast(CAST(6658986 AS INT), 'Date32') AS day FROM t WHERE id = 1"
    assert query_delta_table(path, cast) == [{"id": 1, "day": "+20201-09-08"}]


@pytest.mark.spark
@pytest.mark.parametrize("day", FAR)
def test_a_frame_is_shown_with_a_text_in_place_of_what_python_cannot_hold(spark: SparkSession, day: str) -> None:
    frame = spark.sql(
        f"""SELECT id, day, CAST(day AS TIMESTAMP_NTZ) AS at, CAST(day AS TIMESTAMP_NTZ) AS at, named_struct('day', day) AS within, 'x' AS name
        FROM VALUES (1, DATE'{day}'), (2, DATE'{NEAR}'), (3, NULL) AS rows(id, day)"""
    )
    far, near, none = collect_rows_with_texts(frame)
    assert far == {"id": 1, "day": day, "at": f"{day} 00:00:00", "within": f"{{{day}}}", "name": "x"}
    assert (near["day"], near["at"], near["id"]) == (date(2026, 11, 20), datetime(2026, 11, 20), 2)
    assert (none["day"], none["at"], none["id"]) == (None, None, 3)
    (first,) = collect_rows_with_texts(spark.sql("SELECT TIMESTAMP'0001-01-01 00:00:00' AS at"))
    assert first == {"at": "0001-01-01 00:00:00"}
