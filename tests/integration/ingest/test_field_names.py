"""Fields that begin with an underscore: none hides a row, stops a source or is lost in silence. And deliveries that cannot be written."""

from __future__ import annotations

import errno
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import StopRequested
from sluice.ingest import schema_log
from sluice.lake import commits
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.status import reconciliation
from sluice.runs.status.books import PipelineBooks, find_rescued_fields
from sluice.verification.verify import verify_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.slow  # minutes; unit/declare/ingest/test_field_names.py holds the rule
PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
TAKEN = {"_anonymised": True, "_subject": "x", "_metadata": {"a": 1}, "_change_type": "delete", "_commit_version": 7}


@table(reads="orders", keys="id", sequence_by="id")
def order(orders: DataFrame) -> DataFrame:
    """What was sold."""
    return orders.select("id")


@table(reads="cells", keys="_c0", sequence_by="_c1")
def cell(cells: DataFrame) -> DataFrame:
    """A table of files without a header, whose columns Sluice names."""
    return cells.select("_c0", "_c1")


@table(reads="kept", keys="_id", sequence_by="_id")
def named(kept: DataFrame) -> DataFrame:
    """A table of a source whose columns all begin with an underscore."""
    return kept.select("_id")


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def at_work(settings: Settings, spark: SparkSession, **options: Any) -> Lakehouse:
    sources = [
        Source(name="orders", **options),
        Source(name="cells", format="csv", header=False),
        Source(name="kept", schema_hints="_id STRING"),
    ]
    return Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [*sources, order, cell, named]))


def test_a_field_with_an_underscore_is_rescued_and_told_until_somebody_names_it(settings: Settings, spark: SparkSession) -> None:
    lake = at_work(settings, spark)
    lake.land("orders/1.jsonl", lines({"id": 1, "_id": "a", **TAKEN}, {"id": 2}))
    lake.land("cells/1.csv", "1,x\n")
    lake.land("kept/1.jsonl", lines({"_id": "k", "_other": 1}))
    reports = lake.run()
    assert [lake.rows(name) for name in ("order", "cell", "named")] == [
        [(1, 1, 0), (2, 1, 1)],
        [(1, "x", 2, 0)],
        [("k", 3, 0)],
    ], "nothing is hidden from silver"
    assert [json.loads(rest) if rest else None for _, rest in lake.rows("orders", "id", "_rescued_data")] == [
        {"_id": "a", **TAKEN},
        None,
    ]
    (note,) = (one for one in reports["orders"].notes if one.startswith("rescued from now on"))
    assert "_id (to keep: schema_hints=\"_id string\" of source 'orders')" in note
    assert "_anonymised, _change_type, _commit_version, _metadata, _subject (Sluice, Delta or Spark uses the name itself" in note
    assert {row["source"]: (row["held_back"] or {}).keys() for row in lake.outcomes()} == {
        "orders": {"_id", *TAKEN},
        "cells": set(),
        "kept": {"_other"},
    }
    assert all(found.equal for found in verify_tables(lake.settings, spark, lake.graph))

    lake = at_work(settings, spark, schema_hints="_id STRING")
    assert [set(one["fields"]) for one in find_rescued_fields(PipelineBooks(settings, lake.graph))] == [set(TAKEN), {"_other"}]
    lake.land("orders/2.jsonl", lines({"id": 3, "_id": "b", "_new": 1, "_metadata": 1}))
    (note,) = lake.run("bronze")["orders"].notes
    assert "_new" in note and "_id" not in note and "_metadata" not in note, "what was told is not told again"
    assert lake.rows("orders", "id", "_id") == [(1, None), (2, None), (3, "b")]

    # A lake of before may have rows that were hidden so: nobody was erased, and the accounts do not add up.
    spark.sql(f"ALTER TABLE delta.`{lake.workspace().path('orders')}` ADD COLUMNS (_anonymised BOOLEAN)")
    assert all(account.adds_up for account in reconciliation.reconcile_deliveries(PipelineLake(settings, lake.graph)))
    spark.sql(f"UPDATE delta.`{lake.workspace().path('orders')}` SET _anonymised = true WHERE id = 2")
    (account,) = (
        one for one in reconciliation.reconcile_deliveries(PipelineLake(settings, lake.graph)) if one.source == "orders"
    )
    assert (account.marked, account.hidden, account.adds_up) == (1, 1, False)


def packed(**columns: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def good(number: int, **more: Any) -> bytes:
    return packed(id=pa.array([number]), **{name: pa.array([value]) for name, value in more.items()})


BAD = packed(id=pa.array([8]), m=pa.array([[("k", {"a b": 1})]], pa.map_(pa.string(), pa.struct([("a b", pa.int64())]))))
"""Delta takes no blank in a name, and below a MAP nobody looks for one before."""


def test_a_delivery_that_cannot_be_written_is_set_aside_alone_and_its_source_goes_on(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [Source(name="orders", format="parquet"), order]))
    lake.land("orders/1", good(1))
    lake.land("orders/2", BAD)
    lake.land("orders/3", good(3, town="Rome"))
    report = lake.run()["orders"]
    assert lake.rows("orders", "id", "town") == [(1, None), (3, "Rome")]
    assert [(row["file"], row["state"], row["rows"], row["quarantined"]) for row in lake.outcomes()] == [
        ("1", "ingested", 1, 0),
        ("2", "quarantined", 0, 1),
        ("3", "ingested", 1, 0),
    ]
    (aside,) = lake.rows("orders_quarantine", "_file", "content", "reasons")
    assert (aside[0], bytes(aside[1])) == ("2", BAD) and aside[2][0].startswith("its records cannot be written")
    assert report.quarantined == 1 and lake.rows("order", "id") == [(1,), (3,)]
    written = schema_log.read_latest_schema_version(lake.workspace().schemas("orders"))
    assert written is not None and set(written.columns().names) == {"id", "town"}, "no later delivery is read into its columns"

    # One that comes alone as well; the next ones come.
    lake.land("orders/4", BAD)
    assert lake.run("bronze")["orders"].quarantined == 1
    lake.land("orders/5", good(5))
    assert lake.run("bronze")["orders"].rows_out == 1
    assert all(account.adds_up for account in reconciliation.reconcile_deliveries(PipelineLake(settings, lake.graph)))

    # What is not their own fault sets nothing aside: a full disk, a stop, a table that is gone. All deliveries failing is no fault of one.
    writing = commits.append_rows
    lake.land("orders/6", BAD)
    lake.land("orders/7", good(7))

    def full(rows: DataFrame, path: str, *more: Any) -> None:
        if "m" not in rows.columns:
            raise OSError(errno.ENOSPC, "No space left on device")
        writing(rows, path, *more)

    def stopped(rows: DataFrame, path: str, *more: Any) -> None:
        raise StopRequested("stopped on request")

    def lost(rows: DataFrame, path: str, *more: Any) -> None:
        shutil.move(path, f"{path}.away")
        try:
            writing(spark.read.format("delta").load(path), path, *more)
        finally:
            shutil.move(f"{path}.away", path)

    def failing(rows: DataFrame, path: str, *more: Any) -> None:
        raise ValueError("a mistake of Sluice's own")

    for fault, raised in ((full, OSError), (stopped, StopRequested), (lost, Exception), (failing, ValueError)):
        with monkeypatch.context() as patched:
            patched.setattr(commits, "append_rows", fault)
            with pytest.raises(raised):
                lake.run("bronze")
        assert [row["state"] for row in lake.outcomes()[5:]] == ["waiting", "waiting"], fault.__name__
    assert lake.run("bronze")["orders"].quarantined == 1
    assert [row["state"] for row in lake.outcomes()[5:]] == ["quarantined", "ingested"]
