"""Landed files through bronze: nothing is lost, whatever shape it has."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import SluiceError, UsageError
from sluice.ingest.reading import contents, records
from sluice.ingest.reading.examination import Delivery, ExaminedDelivery
from sluice.record_states import DELIVERED, QUARANTINED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze",))
CSV = Source(name="orders", format="csv", path="orders", pattern="*.csv", infer_types=False, comment="Orders.")
JSON = Source(
    name="clicks",
    format="json",
    path="clicks",
    comment="Clicks.",
    schema="who BIGINT, page STRING",
    subject="who",
    pattern="*.jsonl",
)


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Callable[..., Lakehouse]:
    """A lakehouse with these sources."""
    return lambda *sources: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, sources))


def test_headers_drift_and_lose_nothing(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(CSV)
    lake.land("orders/1.csv", "id,name,place\n1,a,x\n")
    lake.land("orders/2.csv", "place,id,name\ny,2,b\n")  # reordered
    lake.land("orders/3.csv", "id,full name,note\n3,c,n\n")  # renamed, with a blank
    lake.land("orders/4.csv", "id,name,\n4,d,extra\n5,e,\n")  # a nameless one, filled once
    lake.land("orders/5.csv", "\ufeffID,Name,name\n6,f,g\n")  # byte order mark, letter case, a name twice
    lake.run()
    assert lake.rows("orders", "id", "name", "place", "full_name", "note", "_rescued_data") == [
        ("1", "a", "x", None, None, None),
        ("2", "b", "y", None, None, None),
        ("3", None, None, "c", "n", None),
        ("4", "d", None, None, None, '{"_field_3":"extra"}'),
        ("5", "e", None, None, None, None),
        ("6", "f", None, None, None, '{"_field_3":"g"}'),
    ]


def test_what_does_not_fit_is_set_aside_and_the_run_goes_on(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(CSV)
    semicolons = "id;name\n1;a\n"
    lake.land("orders/semicolons.csv", semicolons)
    lake.land("orders/ragged.csv", "id,name\n2,b\n3\n4,c,d\n5,e\n")
    lake.land("orders/latin.csv", "id,name\n6,\xe9\n".encode("latin-1"))
    lake.land("orders/nul.csv", b"id,name\n7,\0\n")
    lake.land("orders/empty.csv", " \n\n")
    lake.land("orders/quoted.csv", 'id,name\n8,"a, ""b""\nc"\n')
    report = lake.run()["orders"]
    assert lake.rows("orders", "id", "name") == [("2", "b"), ("5", "e"), ("8", 'a, "b"\nc')]
    aside = lake.rows("orders_quarantine", "_file", "record", "content", "reasons")
    assert [(row[0], row[1], bytes(row[2]) if row[2] else None) for row in aside] == [
        ("latin.csv", None, "id,name\n6,\xe9\n".encode("latin-1")),
        ("nul.csv", None, b"id,name\n7,\0\n"),
        ("ragged.csv", "3", None),
        ("ragged.csv", "4,c,d", None),
        ("semicolons.csv", None, semicolons.encode()),
    ]
    assert {row["file"]: (row["state"], row["rows"], row["quarantined"]) for row in lake.outcomes()} == {
        "semicolons.csv": ("quarantined", 0, 1),
        "ragged.csv": ("ingested", 2, 2),
        "latin.csv": ("quarantined", 0, 1),
        "nul.csv": ("quarantined", 0, 1),
        "empty.csv": ("ingested", 0, 0),
        "quoted.csv": ("ingested", 1, 0),
    }
    assert (report.deliveries, report.rows_in, report.rows_out, report.quarantined) == (6, 8, 3, 5)


def test_json_lines_keep_what_their_schema_does_not_know(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(JSON)
    lines = [
        '{"who": 1, "page": "a"}',
        '{"who": "two", "page": "b", "more": {"x": 1}}',
        '{"who": 3, "page": nul',
        "[1, 2]",
        "",
        '{"page": null}',
    ]
    lake.land("clicks/1.jsonl", "\n".join(lines))
    lake.run()
    rows = lake.rows("clicks", "who", "page", "_rescued_data")
    assert [(who, page, json.loads(rest) if rest else None) for who, page, rest in rows] == [
        (1, "a", None),
        (None, "b", {"who": "two", "more": {"x": 1}}),
        (None, None, None),
    ]
    # F18: a malformed line is no row of NULLs; and whose it is can be read from it.
    assert lake.rows("clicks_quarantine", "record", "_subject", "reasons") == [
        ("[1, 2]", None, ["the line is no JSON object"]),
        ('{"who": 3, "page": nul', "3", ["the line is no JSON object"]),
    ]


def test_json_without_a_schema_gives_a_typed_column_a_field_and_grows(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(Source(name="free", format="json", path="free", comment="Anything."))
    lake.land("free/1", '{"a": 1, "b": {"c": 2}}\n')
    lake.run()
    lake.land("free/2", '{"a": "x", "A": "y", "new": 2.5}\n')
    lake.run()
    assert [
        (a, b and b.asDict(), new, rest and json.loads(rest))
        for a, b, new, rest in lake.rows("free", "a", "b", "new", "_rescued_data")
    ] == [
        (1, {"c": 2}, None, None),
        (None, None, 2.5, {"a": "x", "A": "y"}),
    ]


@pytest.mark.thorough
def test_json_as_text_keeps_what_was_delivered(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(Source(name="free", comment="Anything.", infer_types=False))
    lake.land("free/1", '{"a": 1.50, "b": {"c": 2}}\n')
    lake.run()
    lake.land("free/2", '{"a": "x", "A": "y", "new": 12345678901234567890.5}\n')
    lake.run()
    assert lake.rows("free", "a", "b", "new", "_rescued_data") == [
        ("1.50", '{"c":2}', None, None),
        ("x", None, "12345678901234567890.5", '{"A":"y"}'),
    ]


def test_a_file_that_comes_again_is_a_delivery_and_one_that_goes_removes_nothing(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(CSV)
    first = lake.land("orders/a.csv", "id\n1\n")
    lake.run()
    lake.land("orders/a.csv", "id\n2\n")
    lake.run()
    first.unlink()
    (first.parent / "_MAY_BE_EMPTY").touch()
    lake.run()
    assert [(row["event"], row["state"]) for row in lake.outcomes()] == [
        ("delivered", "ingested"),
        ("delivered", "ingested"),
        ("vanished", "vanished"),
    ]
    assert lake.rows("orders", "id", "_delivery") == [("1", 1), ("2", 2)]
    before = lake.versions()
    assert lake.run()["orders"].committed is False
    assert lake.versions() == before


@pytest.mark.thorough
def test_file_names_are_taken_literally(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(CSV)
    names = ["a b.csv", "[x]*{y}.csv", "50%25+1.csv", "\xe9t\xe9.csv", "deep/er/#1.csv"]
    for number, name in enumerate(names):
        lake.land(f"orders/{name}", f"id\n{number}\n")
    lake.run()
    assert lake.rows("orders", "id", "_file") == [(str(number), name) for number, name in enumerate(names)]


@pytest.mark.thorough
def test_a_change_between_discovery_and_reading_is_a_delivery_of_its_own(
    shop: Callable[..., Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluice.runs.execution import layers

    lake = shop(CSV)
    lake.land("orders/a.csv", "id\n1\n")
    discover = layers.discover_run_deliveries

    def and_change(*arguments: Any) -> Any:
        found = discover(*arguments)
        lake.land("orders/a.csv", "id\n22\n")
        return found

    monkeypatch.setattr(layers, "discover_run_deliveries", and_change)
    lake.run()
    monkeypatch.undo()
    lake.run()
    assert [(row["state"], row["rows"]) for row in lake.outcomes()] == [("missed", 0), ("ingested", 1)]
    assert lake.rows("orders", "id") == [("22",)]


def test_no_landing_folder_is_said_in_one_line(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(CSV)
    with pytest.raises(UsageError, match="has no landing folder"):
        lake.run()
    assert not (lake.settings.landing / "shop").exists()


def test_a_rate_limit_is_deliveries_a_batch(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(Source(name="orders", format="csv", path="orders", infer_types=False, comment="Orders.", max_files_per_trigger=2))
    for number in range(5):
        lake.land(f"orders/{number}.csv", f"id\n{number}\n")
    assert lake.run()["orders"].batches == 3
    assert len(lake.rows("orders")) == 5


def test_statistics_hold_no_delivered_value(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(JSON)
    lake.land("clicks/1.jsonl", '{"who": 987654321, "page": "a"}\n{"who": 987654321, "pa\n')
    lake.run()
    for name, path in lake.workspace().lake.record_tables().items():
        for log in __import__("pathlib").Path(path).glob("_delta_log/*.json"):
            assert "987654321" not in log.read_text(), name


@pytest.mark.parametrize(("here", "part"), [(True, None), (False, None), (False, 8)], ids=["here", "by workers", "in parts"])
def test_records_are_the_same_wherever_they_are_read(
    shop: Callable[..., Lakehouse], monkeypatch: pytest.MonkeyPatch, here: bool, part: int | None
) -> None:
    """Also in parts of files: they are numbered through, and of names that differ in letter case the first becomes the column."""
    from sluice.ingest.files import delivered_bytes

    if not here:
        monkeypatch.setattr(records, "MOST_BYTES_IN_PROCESS", -1)
    if part:
        monkeypatch.setattr(delivered_bytes, "PART_BYTES", part)
    lake = shop(Source(name="clicks", schema_hints="at TIMESTAMP, who BIGINT", subject="who"))
    lake.land("clicks/day=2026-11-20/1.json", '{"who": 1, "at": "2026-11-20T10:00:00Z"}\nno object\n{"who": 2, "n": {"x": 1}}\n')
    lake.land("clicks/day=2026-11-21/2.json.gz", gzip.compress(b'{"who": "x", "n": {"y": [1.5]}}\n'))
    lake.land("clicks/3.json", '{"Who": 3}\n' * 3)
    lake.land("clicks/4.json.gz", gzip.compress(b'{"who": 4}\n' * 9)[:-9])
    lake.land("clicks/5.json", '{"Odd": 1}\n{"odd": 2}\n')
    lake.run()
    rows = lake.rows("clicks", "_delivery", "_row", "who", "at", "n", "day", "_rescued_data")
    assert [(*row[:3], str(row[3]), row[4] and row[4].asDict(), str(row[5]), row[6] and json.loads(row[6])) for row in rows] == [
        (1, 0, 1, "2026-11-20 10:00:00", None, "2026-11-20", None),
        (1, 2, 2, "None", {"x": 1, "y": None}, "2026-11-20", None),
        (2, 0, None, "None", {"x": None, "y": [1.5]}, "2026-11-21", {"who": "x"}),
        *((3, row, None, "None", None, "None", {"Who": 3}) for row in range(3)),
        (5, 0, None, "None", None, "None", None),
        (5, 1, None, "None", None, "None", {"odd": 2}),
    ]
    assert "Odd" in lake.spark.read.format("delta").load(lake.workspace().path("clicks")).columns
    assert [(o["file"], o["state"], o["read"], o["rows"], o["rescued"], o["quarantined"]) for o in lake.outcomes()] == [
        ("day=2026-11-20/1.json", "ingested", 3, 2, 0, 1),
        ("day=2026-11-21/2.json.gz", "ingested", 1, 1, 1, 0),
        ("3.json", "ingested", 3, 3, 3, 0),
        ("4.json.gz", "quarantined", 1, 0, 0, 1),
        ("5.json", "ingested", 2, 2, 1, 0),
    ]


def test_a_file_that_proves_unreadable_while_it_is_read_holds_nobody_up(
    shop: Callable[..., Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluice.ingest.files import delivered_bytes
    from sluice.ingest.reading import workers

    real = workers.formats.read_file_records

    def failing(source: Source, path: Any, *more: Any) -> Any:
        yield from real(source, path, *more)
        if path.name == "1.json":
            raise delivered_bytes.UnreadableFile("the file is damaged")

    monkeypatch.setattr(workers.formats, "read_file_records", failing)
    lake = shop(Source(name="clicks"))
    lake.land("clicks/1.json", '{"who": 1}\n')
    lake.land("clicks/2.json", '{"who": 2}\n')
    lake.run()
    assert lake.rows("clicks", "_file", "who") == [("2.json", 2)]
    assert [(row[0], row[1], bytes(row[2])) for row in lake.rows("clicks_quarantine", "_file", "reasons", "content")] == [
        ("1.json", ["the file is damaged"], b'{"who": 1}\n')
    ]


def test_new_columns_fail_a_run_that_says_so_and_nothing_is_written(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(Source(name="clicks", schema="who BIGINT", schema_evolution="fail_on_new_columns"))
    lake.land("clicks/1.json", '{"who": 1}\n')
    lake.run()
    lake.land("clicks/2.json", '{"who": 2, "page": {"a": 7}}\n')
    before = lake.versions()
    with pytest.raises(SluiceError, match="no column yet: the field page"):
        lake.run()
    assert lake.versions() == before
    lake = shop(Source(name="clicks", schema="who BIGINT", schema_evolution="none"))
    lake.run()
    assert lake.rows("clicks", "who", "_rescued_data") == [(1, None), (2, None)]


@pytest.mark.parametrize("name", ["50%25+1.json", "100%.json", "hour=10%3A00/é [x].json"])
def test_bytes_of_large_refused_files_are_kept_whatever_their_names(
    settings: Settings, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(records, "MOST_BYTES_IN_PROCESS", 0)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"not read")
    refused = ExaminedDelivery(Delivery(1, "clicks", name, DELIVERED, path, 8, None, None), QUARANTINED, "it cannot be read")
    (row,) = contents.read_refused_files(spark, [refused]).collect()
    assert (row._delivery, row._file, bytes(row.content)) == (1, name, b"not read")
