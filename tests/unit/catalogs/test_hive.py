"""The messages that a Hive metastore gets. The metastore itself: tests/system/test_catalogs.py."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest

if not os.environ.get("CI"):
    pytest.importorskip("pymetastore", reason="pymetastore is not installed: pip install -r requirements.txt")

from sluice.catalog_address import CatalogAddress
from sluice.catalogs import hive
from sluice.catalogs.catalog import CatalogAway, CatalogFailed, NamedColumn, NamedTable, open_catalog
from sluice.catalogs.hive import HiveMetastore, build_hive_table, name_hive_type, read_entry

TABLE = NamedTable(
    "gym", "day", "file:///lake/gym/gold/day", (NamedColumn("day", "date", "UTC."), NamedColumn("n", "long")), "By day."
)


def test_a_table_is_external_and_delta_as_spark_writes_it() -> None:
    told = build_hive_table(TABLE)
    assert (told.dbName, told.tableName, told.tableType) == ("gym", "day", "EXTERNAL_TABLE")
    assert told.parameters == {
        "EXTERNAL": "TRUE",
        "spark.sql.sources.provider": "delta",
        "comment": "By day.",
        "sluice.pipeline": "gym",
        "sluice.place": TABLE.location,
    }
    assert told.sd.location == told.sd.serdeInfo.parameters["path"] == TABLE.location
    assert [(one.name, one.type, one.comment) for one in told.sd.cols] == [("day", "date", "UTC."), ("n", "bigint", None)]
    assert told.partitionKeys == []


def test_a_view_has_a_text_and_no_location_of_its_own() -> None:
    told = build_hive_table(replace(TABLE, query="SELECT 1 AS n"))
    assert (told.tableType, told.viewOriginalText, told.viewExpandedText) == ("VIRTUAL_VIEW", "SELECT 1 AS n", "SELECT 1 AS n")
    assert told.sd.location is None and "path" not in told.sd.serdeInfo.parameters
    assert "spark.sql.sources.provider" not in told.parameters


@pytest.mark.parametrize(
    ("of_delta", "of_hive"),
    [
        ("long", "bigint"),
        ("decimal(20,6)", "decimal(20,6)"),
        ("timestamp_ntz", "timestamp"),
        ("variant", "string"),
        ({"type": "array", "elementType": "short", "containsNull": True}, "array<smallint>"),
        ({"type": "map", "keyType": "string", "valueType": "byte", "valueContainsNull": True}, "map<string,tinyint>"),
        (
            {
                "type": "struct",
                "fields": [{"name": "a", "type": "integer"}, {"name": "b", "type": {"type": "array", "elementType": "date"}}],
            },
            "struct<a:int,b:array<date>>",
        ),
        ({"type": "array", "elementType": {"type": "struct", "fields": [{"name": "b:c", "type": "long"}]}}, "array<string>"),
    ],
)
def test_types_are_called_as_hive_calls_them(of_delta: str | dict[str, object], of_hive: str) -> None:
    assert name_hive_type(of_delta) == of_hive


def test_nobody_who_answers_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(CatalogFailed) as failed, open_catalog(CatalogAddress("thrift", "127.0.0.1", port)):
            pass
    assert str(port) in str(failed.value) and "\n" not in str(failed.value)


def test_an_entry_is_current_until_something_of_it_differs() -> None:
    catalog = HiveMetastore(None)
    held = read_entry(build_hive_table(TABLE))
    assert (held.pipeline, held.location) == ("gym", TABLE.location)
    assert catalog.is_current(held, TABLE)
    for changed in (
        replace(TABLE, comment="Other."),
        replace(TABLE, comment=""),
        replace(TABLE, location="file:///elsewhere/day"),
        replace(TABLE, columns=TABLE.columns[:1]),
        replace(TABLE, query="SELECT 1"),
    ):
        assert not catalog.is_current(held, changed)


def test_an_entry_is_current_although_the_metastore_writes_names_in_lower_case() -> None:
    table = replace(TABLE, columns=(NamedColumn("deviceId", "long"),))
    entry = build_hive_table(table)
    entry.sd.cols = [type(column)(column.name.lower(), column.type, column.comment) for column in entry.sd.cols]
    assert HiveMetastore(None).is_current(read_entry(entry), table)


def test_what_others_added_to_an_entry_stays_and_does_not_count() -> None:
    entry = build_hive_table(TABLE)
    entry.parameters |= {"transient_lastDdlTime": "1", "owner_team": "x"}
    entry.sd.location = "file:/lake/gym/gold/day"  # as the metastore writes it
    catalog = HiveMetastore(None)
    assert catalog.is_current(read_entry(entry), TABLE)


def test_whoever_answers_too_late_is_away_and_not_only_refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that takes the connection and says nothing."""
    monkeypatch.setattr(hive, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = CatalogAddress("thrift", "127.0.0.1", silent.getsockname()[1])
        with pytest.raises(CatalogAway), open_catalog(address) as catalog:
            catalog.list_names("gym")


def test_what_the_metastore_refuses_does_not_end_the_connection() -> None:
    with pytest.raises(CatalogFailed, match="MetaException: no") as failed, hive._saying_what_failed():
        raise hive.ttypes.MetaException("no")
    assert not isinstance(failed.value, CatalogAway)
