"""Whatever comes is accounted for, and however it is batched, bronze is the same (I1, I2)."""

from __future__ import annotations

import bz2
import gzip
import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.flows.bronze import accounting

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

PIPELINE = Pipeline(name="odd", description="Odd files.", owner="t", layers=("pipelines.odd.bronze",))
DEEP = '{"a":' * 5000 + "1" + "}" * 5000
FILES: dict[str, bytes] = {
    "json/1 good.json": b'{"id": 1, "text": "a"}\n{"id": 2, "text": "b", "new": 3}\n',
    "json/2 long.json": b'{"id": 3, "text": "' + b"x" * 3_000_000 + b'"}\n{"id": 4}\n',
    "json/3 deep.json": f'{DEEP}\n{{"id": 5}}\n'.encode(),
    "json/4 mixed.json": b'{"id": 6.5, "ID": 7, "text": "c", "text": "d"}\n{"id": NaN}\n{"id": 7} {"id": 8}\n\n[]\n',
    "json/5 empty.json": b"",
    "json/6 blank.json": b" \n\t\n",
    "json/7 cut.json.gz": gzip.compress(b'{"id": 9}\n' * 1000)[:-12],
    "json/8 no.json.gz": b'{"id": 10}\n',
    "json/9 bomb.json.bz2": bz2.compress(b" " * 5_000_000),
    "json/a latin.json": '{"id": 11, "text": "\xe9"}\n'.encode("latin-1"),
    "json/b wide.json": '{"id": 12}\n'.encode("utf-16"),
    "json/c nul.json": b'{"id": 13, "text": "\0"}\n',
    "json/d day=2026-11-20/[x] {*}.json.gz": gzip.compress(b'{"id": 14}\n'),
    "csv/1.csv": b"id,text,more\n1,a\n2,b,c\n3,d,e,f\n007,g,\n",
    "csv/2.csv": b"text,id\nx,9\n\xff,10\n",
    "csv/3.csv": b"other;id\nx;9\n",
}
SOURCES = {
    "json": {"schema": "id BIGINT, text STRING"},
    "csv": {"format": "csv", "infer_types": False},
    "parquet": {"format": "parquet", "schema": "id BIGINT, text STRING"},
}
ACCOUNTED = {
    # file: state, read, in bronze, rescued, in quarantine
    "1 good.json": ("ingested", 2, 2, 1, 0),
    "2 long.json": ("ingested", 2, 2, 0, 0),
    "3 deep.json": ("ingested", 2, 1, 0, 1),
    "4 mixed.json": ("ingested", 4, 2, 2, 2),
    "5 empty.json": ("ingested", 0, 0, 0, 0),
    "6 blank.json": ("ingested", 0, 0, 0, 0),
    **dict.fromkeys(
        ["7 cut.json.gz", "8 no.json.gz", "9 bomb.json.bz2", "a latin.json", "b wide.json", "c nul.json"],
        ("quarantined", 1, 0, 0, 1),
    ),
    "d day=2026-11-20/[x] {*}.json.gz": ("ingested", 1, 1, 1, 0),
    "1.csv": ("ingested", 4, 2, 0, 2),
    "2.csv": ("quarantined", 1, 0, 0, 1),
    "3.csv": ("quarantined", 1, 0, 0, 1),
    "1.parquet": ("ingested", 2, 2, 1, 0),
    "2.parquet": ("quarantined", 1, 0, 0, 1),
}


def _files(folder: Path) -> dict[str, bytes]:
    path = folder / "x.parquet"
    pyarrow.parquet.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "text": ["a", "b"], "more": [None, 1.5]}), path)
    whole = path.read_bytes()
    return FILES | {"parquet/1.parquet": whole, "parquet/2.parquet": whole[:-20]}


def _ingested(lake: Lakehouse, files: dict[str, bytes], at_once: int) -> dict[str, list[tuple[Any, ...]]]:
    """Lands all files, this many between two runs. Returns what bronze and quarantine hold, without numbers and times."""
    names = list(files)
    for start in range(0, len(names), at_once):
        for name in names[start : start + at_once]:
            lake.land(name, files[name])
        for source in SOURCES:
            (lake.settings.landing / lake.name / source).mkdir(parents=True, exist_ok=True)
        lake.run()
    found = {}
    for name in SOURCES:
        columns = sorted(
            set(lake.spark.read.format("delta").load(lake.workspace().path(name)).columns) - {"_delivery", "_ingested_at"}
        )
        found[name] = lake.rows(name, *columns)
        found[f"{name}_quarantine"] = lake.rows(f"{name}_quarantine", "_file", "_row", "reasons", "record", "content")
    return found


@pytest.fixture(scope="module")
def all_at_once() -> dict[str, Any]:
    """What the first case found, for the others to be compared with."""
    return {}


@pytest.mark.parametrize(
    "how",
    [
        "at once",
        pytest.param("in three runs", marks=pytest.mark.slow),
        pytest.param("a file a batch", marks=pytest.mark.slow),
        pytest.param("by workers", marks=pytest.mark.thorough),
        "here, on the disk",
    ],
)
def test_every_record_is_accounted_for_and_batching_changes_nothing(
    settings: Settings,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    all_at_once: dict[str, Any],
    how: str,
) -> None:
    from sluice.ingest.reading import records

    if how == "by workers":
        monkeypatch.setattr(records, "MOST_BYTES_IN_PROCESS", -1)
    if how == "here, on the disk":
        monkeypatch.setattr(records, "MOST_BYTES_IN_PLAN", -1)
    most = 1 if how == "a file a batch" else 1000
    sources = [Source(name=name, max_files_per_trigger=most, most_bytes="4m", **options) for name, options in SOURCES.items()]  # type: ignore[arg-type]
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, sources))
    files = _files(tmp_path)
    found = _ingested(lake, files, 6 if how == "in three runs" else len(files))
    outcomes = {row["file"]: row for row in lake.outcomes()}
    names = ("state", "read", "rows", "rescued", "quarantined")
    assert {file: tuple(row[name] for name in names) for file, row in outcomes.items()} == ACCOUNTED
    assert all(row["read"] == row["rows"] + row["quarantined"] + row["suppressed"] for row in outcomes.values())
    for name, rows in found.items():
        if not name.endswith("_quarantine"):
            told = sum(row["rows"] for row in outcomes.values() if row["source"] == name)
            assert len(rows) == told, name
    aside = [row for name, rows in found.items() if name.endswith("_quarantine") for row in rows]
    kept = {row[0]: bytes(row[4]) for row in aside if row[4] is not None}
    whole = [file for file, (state, *_) in ACCOUNTED.items() if state == "quarantined"]
    assert kept == {file: files[f"{outcomes[file]['source']}/{file}"] for file in whole}
    assert all_at_once.setdefault("first", found) == found


def test_what_does_not_fit_is_told_where_it_belongs(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [Source(name="json", schema="id BIGINT, text STRING")]))
    lake.land("json/4 mixed.json", FILES["json/4 mixed.json"])
    lake.run()
    rows = lake.rows("json", "_row", "id", "text", "_rescued_data")
    assert [(*row[:3], json.loads(row[3])) for row in rows] == [
        (0, None, "c", {"id": 6.5, "ID": 7, "text": "d"}),
        (1, None, None, {"id": "NaN"}),
    ]
    assert lake.rows("json_quarantine", "_row", "record") == [(2, '{"id": 7} {"id": 8}'), (3, "[]")]


@pytest.mark.thorough
def test_records_that_are_too_old_are_counted_also_after_a_kill_before_the_outcomes(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(name="json", schema="id BIGINT, at TIMESTAMP", dated_by="at", keep_for="400 days")
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [source]))
    now = datetime.now(UTC).isoformat()
    lake.land("json/1.json", f'{{"id": 1, "at": "2020-01-01T00:00:00Z"}}\n{{"id": 2, "at": "{now}"}}\n', at=time.time() - 60)

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(accounting, "build_outcome_rows", kill)
        lake.run()
    assert lake.rows("json", "id") == [(2,)] and not [row for row in lake.outcomes() if row["state"] == "ingested"]
    assert lake.run()["json"].suppressed == 1
    (row,) = lake.outcomes()
    assert (row["state"], row["read"], row["rows"], row["suppressed"]) == ("ingested", 2, 1, 1)
    assert lake.rows("json", "id") == [(2,)]
