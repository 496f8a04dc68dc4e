"""Setting properties changes nothing else of a table, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable

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
