"""Several sources into one bronze table: each with its own deliveries and quarantine, all of them behind what reads the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.interval import Interval
from sluice.erasure import requests
from sluice.errors import UsageError
from sluice.runs.execution.parallel_flows import group_independent_flows
from sluice.runs.planning import plan as plans
from sluice.runs.status import lag, reconciliation, stale
from sluice.runs.status.books import PipelineBooks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="Visits.", owner="tests", layers=("shop.bronze", __name__))
LAYERS = ("bronze", __name__.rsplit(".", 1)[-1])
visits = Source(name="visits", pattern="*.txt", date_in_path="%Y-%m-%d", subject="who", comment="Visits in the south.")
north = Source(
    name="north", format="csv", pattern="*.txt", date_in_path="%Y-%m-%d", subject="who", redelivery="replace", into="visits"
)


def declared(factor: int = 1) -> Graph:
    @table(reads="visits", keys="who", sequence_by="seen", subject="who")
    def last_seen(visits: DataFrame) -> DataFrame:
        """Where somebody was seen last."""
        return visits.select(
            "who", F.col("seen").cast("bigint").alias("seen"), (F.col("shop").cast("int") * factor).alias("shop")
        )

    @materialized_view(reads="last_seen", keys="shop")
    def by_shop(last_seen: DataFrame) -> DataFrame:
        """How many were seen last in a shop."""
        return last_seen.groupBy("shop").agg(F.count("*").alias("people"))

    return build_declaration_graph(PIPELINE, [visits, north, last_seen, by_shop])


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    """Two days in the south, one in the north; its file has the name of one in the south."""
    found = Lakehouse(settings, spark, declared())
    for day, rows in {1: [("a", 10, 1), ("b", 11, 1)], 2: [("a", 20, 1)]}.items():
        lines = (json.dumps({"who": who, "seen": seen, "shop": shop}) for who, seen, shop in rows)
        found.land(f"visits/2026-01-0{day}.txt", "\n".join(lines))
    found.land("north/2026-01-01.txt", "who,seen,shop\nb,15,2\nc,16,2\nd,17\n")
    return found


def seen(lake: Lakehouse) -> dict[str, tuple[int, int]]:
    return {who: (at, shop) for who, at, shop in lake.rows("last_seen", "who", "seen", "shop")}


def test_records_of_all_its_sources_are_in_the_table_and_folded_together(lake: Lakehouse) -> None:
    reports = lake.run(*LAYERS)
    assert sorted(lake.rows("visits", "who", "_file")) == [
        *[("a", "2026-01-01.txt"), ("a", "2026-01-02.txt")],
        *[("b", "2026-01-01.txt"), ("b", "2026-01-01.txt"), ("c", "2026-01-01.txt")],
    ]
    assert (reports["visits"].rows_out, reports["north"].rows_out, reports["north"].quarantined) == (3, 2, 1)
    assert seen(lake) == {"a": (20, 1), "b": (15, 2), "c": (16, 2)}
    assert set(lake.versions()) == {
        *("visits", "last_seen", "by_shop"),
        *("visits_quarantine", "north_quarantine", "last_seen_quarantine"),
    }
    assert len(lake.rows("north_quarantine")) == 1 and lake.rows("visits_quarantine") == []
    (account,) = reconciliation.reconcile_deliveries(lake.lake)
    assert (account.source, account.landed, account.bronze, account.aside, account.adds_up) == ("visits", 6, 5, 1, True)
    before = lake.versions()
    assert not any(report.committed for report in lake.run(*LAYERS).values())
    assert lake.versions() == before


@pytest.mark.slow
def test_a_file_is_superseded_by_one_of_its_own_source_only(lake: Lakehouse) -> None:
    lake.run(*LAYERS)
    lake.land("north/2026-01-01.txt", "who,seen,shop\nc,16,2\n")
    lake.run(*LAYERS)
    assert seen(lake) == {"a": (20, 1), "b": (11, 1), "c": (16, 2)}, "b was seen in the south, by a file of the same name"
    lake.run(LAYERS[1], mode="refresh", tables=["last_seen"])
    assert seen(lake) == {"a": (20, 1), "b": (11, 1), "c": (16, 2)}
    assert dict(lake.rows("by_shop")) == {1: 2, 2: 1}


@pytest.mark.slow
def test_a_backfill_takes_the_interval_of_all_its_sources(lake: Lakehouse) -> None:
    lake.run(*LAYERS)
    lake.graph = declared(factor=10)
    table = lake.graph.tables["last_seen"]
    first = Interval.of("2026-01-01", "2026-01-01")
    assert [str(one) for one in stale.find_stale_intervals(lake.lake, table)] == ["2026-01-01 to 2026-01-02"]
    assert [str(one) for one in stale.forecast_stale_intervals(lake.lake, table, first)] == ["2026-01-02"]
    lake.land("north/2026-01-01 late.txt", "who,seen,shop\ne,18,2\n")
    reports = lake.replay("2026-01-01", "2026-01-01", ["last_seen"])
    assert (reports["north"].deliveries, reports["visits"].deliveries) == (1, 0)
    assert seen(lake) == {"a": (20, 10), "b": (15, 20), "c": (16, 20), "e": (18, 20)}, "a was there on that day, too"


@pytest.mark.thorough
def test_what_waits_is_of_all_its_sources(lake: Lakehouse) -> None:
    coming = {step.table: (step.does, step.deliveries) for step in plans.plan_run(lake.lake).steps}
    assert (coming["visits"], coming["north"]) == (("ingest", 2), ("ingest", 1))
    lake.run(*LAYERS)
    lake.land("north/2026-01-03.txt", "who,seen,shop\nf,30,2\n")
    coming = {step.table: (step.does, step.deliveries) for step in plans.plan_run(lake.lake).steps}
    assert coming == {"visits": ("nothing", 0), "north": ("ingest", 1), "last_seen": ("fold", 1), "by_shop": ("follow", 0)}
    lake.run("bronze")
    waiting = {flow.table: flow.deliveries for flow in lag.measure_pipeline_lag(PipelineBooks(lake.settings, lake.graph))}
    assert waiting == {"visits": 0, "north": 0, "last_seen": 1, "by_shop": 0}


@pytest.mark.slow
def test_an_erased_person_leaves_the_table_whichever_source_they_came_from(lake: Lakehouse) -> None:
    lake.land("visits/2026-01-03.txt", '{"who": "e", "seen": 3')
    lake.run(*LAYERS)
    requests.receive_erasure_request(lake.lake, ["b", "e"])
    reports = lake.run("propagate_deletions")
    assert reports["visits"].deleted == 2 and "north" not in reports
    assert lake.rows("visits_quarantine") == [] and len(lake.rows("north_quarantine")) == 1
    assert seen(lake) == {"a": (20, 1), "c": (16, 2)}
    lake.land("north/2026-01-04.txt", "who,seen,shop\nb,40,2\n")
    assert lake.run(*LAYERS)["north"].suppressed == 1
    (account,) = reconciliation.reconcile_deliveries(lake.lake)
    assert (account.erased, account.adds_up) == (2, True)


def test_two_sources_of_a_table_are_not_ingested_side_by_side(lake: Lakehouse) -> None:
    levels = [[item.name for item in level] for level in group_independent_flows(lake.graph, "bronze")]
    assert levels == [["visits"], ["north"]]


def test_a_source_that_had_a_table_of_its_own_is_not_moved_in_silence(lake: Lakehouse, spark: SparkSession) -> None:
    own = Source(name="north", format="csv", pattern="*.txt", subject="who")
    lake.graph = build_declaration_graph(PIPELINE, [visits, own])
    lake.run("bronze")
    lake.graph = declared()
    with pytest.raises(UsageError, match="bronze has a table 'north' with its earlier records"):
        lake.run("bronze")
