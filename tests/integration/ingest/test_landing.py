"""A landing folder with everything that can lie in one, through several runs: what is read, what is not, and what the ledger says."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import UsageError
from sluice.flows.bronze import accounting
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.absence import MAY_BE_EMPTY
from sluice.locations import locate
from sluice.runs.execution import layers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
Shop = Callable[..., Lakehouse]


@table(reads="a", keys="id")
def thing(a: DataFrame) -> DataFrame:
    """A thing."""
    return a.select("id")


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Shop:
    return lambda *declared: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, declared))


def test_odd_files_are_read_links_are_refused_and_temporary_ones_wait(shop: Shop, tmp_path: Path) -> None:
    lake = shop(Source(name="a", schema="id BIGINT"))
    lake.land("a/whole.json", '{"id": 1}\n')
    lake.land("a/written.json.tmp", '{"id": 2}\n')
    lake.land("a/line\nend [x] *.json", '{"id": 3}\n')
    (tmp_path / "secret").write_text('{"id": 99}\n')
    (lake.settings.landing / "shop" / "a" / "link.json").symlink_to(tmp_path / "secret")
    raw = os.fsencode(lake.settings.landing / "shop" / "a") + b"/caf\xe9.json"
    Path(os.fsdecode(raw)).write_text('{"id": 4}\n')
    lake.run()
    assert lake.rows("a", "id", "_file") == [(1, "whole.json"), (3, "line\nend [x] *.json"), (4, "caf\\xe9.json")]
    assert lake.rows("a_quarantine", "_file", "content") == [("link.json", None)]
    assert {row["file"]: row["state"] for row in lake.outcomes()} == {
        "whole.json": "ingested",
        "line\nend [x] *.json": "ingested",
        "caf\\xe9.json": "ingested",
        "link.json": "quarantined",
    }
    before = lake.versions()
    lake.run()
    assert lake.versions() == before


def test_what_was_there_before_is_in_the_ledger_and_in_no_table(shop: Shop) -> None:
    lake = shop(Source(name="a", schema="id BIGINT", include_existing_files=False))
    lake.land("a/old.json", '{"id": 1}\n')
    lake.run()
    lake.land("a/new.json", '{"id": 2}\n')
    lake.run()
    assert lake.rows("a", "id") == [(2,)]
    assert [(row["file"], row["state"]) for row in lake.outcomes()] == [("old.json", "existing"), ("new.json", "ingested")]


@pytest.mark.thorough
def test_an_archived_file_is_no_surprise_and_its_rows_stay(shop: Shop) -> None:
    lake = shop(Source(name="a", schema="id BIGINT", clean_source="archive", clean_after_days=0), thing)
    lake.land("a/x.json", '{"id": 1}\nno object\n')
    lake.land("a/nul.json", b"\0\n")
    report = lake.run()["a"]
    landing = lake.settings.landing / "shop"
    assert "1 file archived" in report.notes
    assert (landing / "_archive" / "a" / "x.json").exists()
    assert [path.name for path in (landing / "a").iterdir()] == ["nul.json"], "what was refused stays"
    before = lake.versions()
    lake.run("bronze")
    assert lake.versions() == before
    assert lake.rows("thing", "id") == [(1,)]
    assert [(row["file"], row["state"]) for row in lake.outcomes()] == [
        ("x.json", "ingested"),
        ("nul.json", "quarantined"),
        ("x.json", "cleaned"),
    ]


@pytest.mark.thorough
def test_a_lake_with_an_older_ledger_goes_on_where_it_was(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = shop(Source(name="a", schema="id BIGINT"), thing)
    older = pa.schema([field for field in delivery_tables.OUTCOMES if field.name not in ("read", "discarded", "entry")])
    with monkeypatch.context() as before:
        before.setattr(delivery_tables, "OUTCOMES", older)
        before.setattr(
            delivery_tables,
            "DELIVERIES",
            pa.schema([one for one in delivery_tables.DELIVERIES if one.name not in ("reason", "device", "etag")]),
        )
        lake.land("a/1.json", '{"id": 1}\n')
        lake.land("a/2.json", '{"id": 2}\n')
        lake.run()
    assert [row["read"] for row in lake.outcomes()] == [None, None]
    lake.land("a/3.json", '{"id": 3}\n')
    reports = lake.run()
    assert [row["read"] for row in lake.outcomes()] == [None, None, 1]
    assert [row["entry"] for row in lake.outcomes()] == [None, None, 1]
    assert lake.rows("thing", "id") == [(1,), (2,), (3,)]
    assert reports["thing"].inserted == 1, "silver went on from its checkpoint"
    assert not any("anew" in note for note in reports["thing"].notes)


def test_what_the_disk_does_not_give_is_read_once_it_does_and_never_twice(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = shop(Source(name="a", schema="id BIGINT"), thing)
    folder, real, broken = lake.settings.landing / "shop" / "a", os.open, set[str]()
    later = 0

    def failing(path: Any, *arguments: Any, **options: Any) -> int:
        nonlocal later
        if os.fspath(path) in broken:
            if later <= 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            later -= 1
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", failing)
    # It cannot be opened by discovery; then by the look at it; then when its records are read: each time the next run tries again.
    lake.land("a/1.json", '{"id": 1}\n')
    second = lake.land("a/2.json", '{"id": 2}\n')
    broken.add(str(second))
    told = "1 file is missed, which every run tries again: sluice ledger shop --state missed"
    assert told in lake.run("bronze")["a"].notes
    before = lake.versions()
    assert told in lake.run("bronze")["a"].notes and lake.versions() == before, "noted once"
    for opened in (2, 3):  # by the try whether it can be opened and by its hash; by the look, too
        later = opened
        assert told in lake.run("bronze")["a"].notes
    assert lake.rows("a", "id") == [(1,)] and lake.rows("a_quarantine") == []
    broken.clear()
    assert told not in lake.run("bronze")["a"].notes
    states = [(row["file"], row["state"]) for row in lake.outcomes()]
    assert states == [("2.json", "missed"), ("1.json", "ingested"), *[("2.json", "missed")] * 2, ("2.json", "ingested")]
    # Other content under the same size and time, after discovery.
    with monkeypatch.context() as meanwhile:
        discover = layers.discover_run_deliveries

        def and_change(*arguments: Any) -> Any:
            found = discover(*arguments)
            lake.land("a/3.json", '{"id": 4}\n', at=1_700_000_000)
            return found

        lake.land("a/3.json", '{"id": 3}\n', at=1_700_000_000)
        meanwhile.setattr(layers, "discover_run_deliveries", and_change)
        assert told in lake.run("bronze")["a"].notes
    lake.run()
    assert lake.rows("thing", "id") == [(1,), (2,), (4,)]
    # The disk is not there for a run; then the last commit of the ledger is lost.
    mounted = folder.rename(folder.with_name("mounted"))
    folder.mkdir()
    with pytest.raises(UsageError, match=MAY_BE_EMPTY):
        lake.run("bronze")
    folder.rmdir()
    mounted.rename(folder)
    last = max((locate(lake.workspace().deliveries) / "_delta_log").glob("*.json"))
    for file in (last, last.with_suffix(".crc")):
        file.unlink()
    lake.land("a/5.json", '{"id": 5}\n')
    notes = lake.run()["a"].notes
    assert any(accounting.LEDGER_LOST_COMMITS in note for note in notes), notes
    assert [row[0] for row in lake.rows("a", "id")] == [1, 2, 4, 5] and lake.rows("thing", "id") == [(1,), (2,), (4,), (5,)]
    numbers = [row["delivery"] for row in lake.outcomes()]
    assert len(numbers) == len(set(numbers))
    before = lake.versions()
    lake.run("bronze")
    assert lake.versions() == before
