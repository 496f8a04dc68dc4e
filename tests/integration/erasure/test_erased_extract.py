"""An extract that has an erased person alone is not known afterwards, and the erasure says so: a limit, which docs/cdc.md names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

from sluice.declare import Pipeline, Source, auto_cdc_from_snapshot
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import requests
from sluice.lake.pipeline_lake import PipelineLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.usefixtures("uncontrolled")

PIPELINE = Pipeline(name="club", description="c", owner="t", layers=("pipelines.club.bronze", __name__))
extracts = Source(name="extracts", schema="who STRING, day INT", subject="who")
LAYER = __name__.rpartition(".")[2]
members = auto_cdc_from_snapshot("members", reads="extracts", keys="who", snapshot_by="day", subject="who")


@pytest.mark.thorough(beside="integration/erasure/test_erased_stays_erased.py")
def test_an_erasure_says_which_target_lost_the_only_row_of_an_extract(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [extracts, members]))
    append_delivery(lake.workspace(), extracts, 1, [("ada", 1), ("bob", 1), ("ada", 2), ("cem", 3)])
    lake.run(LAYER)
    assert lake.rows("members", "who") == [("cem",)]
    requests.receive_erasure_request(PipelineLake(settings, lake.graph), ["cem"], "who")
    found = [one.notes for one in lake.run("propagate_deletions").values() if any("no other row" in note for note in one.notes)]
    assert found == [["1 extract had no other row: keys that were missing there count until the next extract"]]
    assert lake.rows("members", "who") == [("ada",)], "the extract before is the last that is known"
