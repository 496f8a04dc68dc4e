"""Setting properties changes nothing else of a table, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable, write_deltalake

from sluice.errors import SluiceError
from sluice.lake import property_commits, tables
from sluice.lake.layout_properties import PropertyChanges
from sluice.lake.tables import TableShape, parse_ddl_schema
from sluice.table_properties import FINGERPRINT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("ddl", ["id BIGINT", "id BIGINT, n TIMESTAMP_NTZ"])
@pytest.mark.parametrize("change_feed", [True, False])
@pytest.mark.parametrize("made_by", ["Spark", "Sluice"])
def test_the_protocol_stays(spark: SparkSession, tmp_path: Path, ddl: str, change_feed: bool, made_by: str) -> None:
    path = str(tmp_path / "t")
    shape = TableShape(schema=parse_ddl_schema(ddl), comment="x", statistics=("id",), change_feed=change_feed)
    if made_by == "Spark":
        tables._build_table(spark, SparkTable.createIfNotExists(spark).location(path), shape)
    else:
        tables.create_table(spark, path, shape)

    def describe() -> tuple[object, ...]:
        table = DeltaTable(path)
        protocol, data = table.protocol(), table.metadata()
        features = [sorted(one or ()) for one in (protocol.reader_features, protocol.writer_features)]
        kept = {name: value for name, value in data.configuration.items() if name != FINGERPRINT}
        described = (data.id, data.description, data.created_time, data.partition_columns, table.schema().to_json(), kept)
        return (protocol.min_reader_version, protocol.min_writer_version, features, *described)

    before = describe()
    property_commits.change_table_properties(spark, path, PropertyChanges({FINGERPRINT: "it's"}))
    assert describe() == before
    assert DeltaTable(path).metadata().configuration[FINGERPRINT] == "it's"


@pytest.mark.parametrize("times", [1, 9])
def test_a_commit_of_somebody_else_meanwhile_is_waited_out_and_what_stands_is_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    path, left = str(tmp_path / "t"), [times]
    write_deltalake(path, pa.table({"id": [1]}))
    open_table = property_commits.open_table_to_change

    def open_before_another_commit(place: str) -> DeltaTable:
        table = open_table(place)
        if left[0]:
            left[0] -= 1
            DeltaTable(place).alter.set_table_properties({"others": str(left[0])}, raise_if_not_exists=False)
        return table

    monkeypatch.setattr(property_commits, "open_table_to_change", open_before_another_commit)
    if times == 1:
        property_commits.change_table_properties(spark, path, PropertyChanges({FINGERPRINT: "f"}))
        assert DeltaTable(path).metadata().configuration == {FINGERPRINT: "f", "others": "0"}
    else:
        with pytest.raises(
            SluiceError, match=r"when its properties were set, and they were not\. What was committed before stands"
        ):
            property_commits.change_table_properties(spark, path, PropertyChanges({FINGERPRINT: "f"}))
        assert FINGERPRINT not in DeltaTable(path).metadata().configuration
