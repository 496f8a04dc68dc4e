"""An erased person does not come back: not by restoring a table, nor by a file that is delivered again and replayed, nor in a clone.

One small flow shows here what the slow tests of restore, clone, replay and VACUUM show with whole pipelines.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.erasure import requests
from sluice.errors import SluiceError
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.copies import cloning
from sluice.runs.execution import clones
from sluice.runs.repair import restoring
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("uncontrolled")
PIPELINE = Pipeline(name="stall", description="A stall.", owner="tests", layers=("stall.bronze", __name__))
SALES = Source(name="sales", schema="id BIGINT, buyer STRING, day DATE", pattern="*.jsonl", subject="buyer", dated_by="day")
DAY = "2026-01-05"
ERASED = "robert-meier-0815"
"""Longer than what the bytes of a Parquet file spell by chance."""


def declared() -> Graph:
    @table(reads="sales", keys="id", subject="buyer")
    def sale(sales: DataFrame) -> DataFrame:
        """What was sold to whom."""
        return sales.select("id", "buyer", "day")

    return build_declaration_graph(PIPELINE, [SALES, sale])


def buyers(lake: Lakehouse, name: str = "sale") -> set[str]:
    return {str(row[0]) for row in lake.rows(name, "buyer")}


def test_an_erased_person_does_not_come_back(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    stall = Lakehouse(settings, spark, declared())
    delivered = "".join(json.dumps({"id": n, "buyer": who, "day": DAY}) + "\n" for n, who in enumerate(("ann", ERASED, "cleo")))
    stall.land("sales/1.jsonl", delivered)
    stall.run()
    path = stall.workspace().path("sale")
    before = log.latest_table_version(path)
    assert buyers(stall) == {"ann", ERASED, "cleo"}

    requests.receive_erasure_request(PipelineLake(settings, stall.graph), [ERASED], "buyer")
    for wanted in (
        lambda: restoring.run_table_restore(PipelineLake(settings, stall.graph), "sale", str(before)),
        lambda: cloning.clone_tables(PipelineLake(settings, stall.graph), str(tmp_path / "early"), clones.COPY, ()),
    ):
        with pytest.raises(SluiceError, match="Erasure requests of 'stall' wait"):
            wanted()
    stall.run("propagate_deletions")
    assert buyers(stall) == buyers(stall, "sales") == {"ann", "cleo"}

    restored = restoring.run_table_restore(PipelineLake(settings, stall.graph), "sale", str(before))["flows"][0]
    assert restored["suppressed"] == 1 and buyers(stall) == {"ann", "cleo"}, "the version of before has him"

    stall.land("sales/2.jsonl", delivered)
    reports = stall.run("bronze")
    stall.replay(DAY, "2026-01-06")
    assert reports["sales"].suppressed == 1 and buyers(stall) == buyers(stall, "sales") == {"ann", "cleo"}

    cloning.clone_tables(PipelineLake(settings, stall.graph), str(tmp_path / "dev"), clones.COPY, ())
    copy = Lakehouse(replace(settings, lake=str(tmp_path / "dev")), spark, stall.graph)
    assert len(copy.rows("sale")) == len(stall.rows("sale")) > 0
    shutil.rmtree(tmp_path / "dev" / "stall" / "_sluice")
    assert not [file for file in (tmp_path / "dev").rglob("*") if file.is_file() and ERASED.encode() in file.read_bytes()]
