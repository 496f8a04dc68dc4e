"""Views that put a value in place of the NULL of an outer join: rows appear and disappear with it that come from no row of that side (I5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.conftest import Lakehouse
from tests.few_rows import append_rows

from sluice.declare import Pipeline, Source, materialized_view
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.flows.gold import probe
from sluice.flows.gold import view as gold_view
from sluice.flows.gold.probe import InputReach
from sluice.lake import table_creation
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.runs.execution import stages
from sluice.settings import Settings

pytestmark = pytest.mark.spark

PIPELINE = Pipeline(name="held", description="Views.", owner="tests", layers=("held.bronze", __name__))
INPUTS = {"sold": "id INT, k INT, amount INT", "parts": "k INT, grp STRING"}
BY_GROUP = "SELECT coalesce(p.grp, 'none') AS grp, count(*) AS c, sum(s.amount) AS a FROM sold s LEFT JOIN parts p ON s.k = p.k GROUP BY 1"
VIEWS = {
    "by_group": ("grp", BY_GROUP),
    "by_sale": ("id", "SELECT s.id, coalesce(p.grp, 'none') AS grp FROM sold s LEFT JOIN parts p ON s.k = p.k"),
    "by_both": (("id", "grp"), "SELECT s.id, nvl(p.grp, 'none') AS grp FROM parts p RIGHT JOIN sold s ON s.k = p.k"),
    "of_all": ("pk", "SELECT coalesce(p.k, -1) AS pk, count(*) AS c FROM sold s FULL JOIN parts p ON s.k = p.k GROUP BY 1"),
}


class Lake:
    """Eight sales of the parts 0 to 3, of which part 3 is not known and part 0 has no group, and views of them."""

    def __init__(self, settings: Settings, spark: SparkSession, *names: str) -> None:
        self.views = [
            materialized_view(name=name, reads=("sold", "parts"), keys=VIEWS[name][0], sql=VIEWS[name][1], recompute="keys")
            for name in names
        ]
        for view in self.views:
            object.__setattr__(view, "declared_in", __name__)
        sources = [Source(name=name, format="json", path=name, schema=ddl, comment="A table.") for name, ddl in INPUTS.items()]
        self.workspace = Workspace(settings, build_declaration_graph(PIPELINE, [*sources, *self.views]), spark, "run")
        for name, ddl in INPUTS.items():
            table_creation.create_table(
                spark, self.path(name), TableShape(schema=table_creation.parse_ddl_schema(ddl), comment="", statistics=("k",))
            )
        append_rows(self.path("sold"), INPUTS["sold"], [(number, number % 4, 10 * number) for number in range(1, 9)])
        self.put((1, "x"), (2, "y"), (0, None))

    def path(self, name: str) -> str:
        return self.workspace.path(name)

    def put(self, *parts: tuple[object, ...]) -> None:
        append_rows(self.path("parts"), INPUTS["parts"], parts)

    @property
    def parts(self) -> DeltaTable:
        return DeltaTable.forPath(self.workspace.session, self.path("parts"))

    def run(self) -> dict[str, str]:
        """Runs the layer. Returns how much of each view was recomputed."""
        inside = Workspace(self.workspace.settings, self.workspace.graph, self.workspace.session, "run", "increment")
        reports = stages.run_pipeline_stage(inside, __name__.rsplit(".", 1)[-1])
        return {report.flow: report.recomputed or "" for report in reports}

    def find_differences(self) -> dict[str, tuple[list[Any], list[Any]]]:
        """By view that differs from its full recompute, what it has and what it should have."""
        read = self.workspace.session.read.format("delta").load
        lake = Lakehouse(self.workspace.settings, self.workspace.session, self.workspace.graph)
        found = {}
        for view in self.views:
            recomputed = view(*(read(self.path(name)) for name in view.reads))
            stored = lake.rows(view.name, *recomputed.columns)
            expected = sorted(map(tuple, recomputed.collect()), key=repr)
            if stored != expected:
                found[view.name] = (stored, expected)
        return found


@pytest.mark.parametrize(
    "views", [pytest.param(("by_group", "of_all"), id="two"), pytest.param(tuple(VIEWS), id="all", marks=pytest.mark.slow)]
)
def test_a_value_in_place_of_a_missing_partner_follows_the_partner(
    settings: Settings, spark: SparkSession, views: tuple[str, ...]
) -> None:
    lake = Lake(settings, spark, *views)
    lake.run()
    lake.put((3, "z"))
    lake.run()
    assert lake.find_differences() == {}, "a partner came late"
    lake.parts.delete("k = 1")
    lake.run()
    assert lake.find_differences() == {}, "a partner went"
    lake.parts.update("k = 0", {"grp": F.lit("none")})
    lake.run()
    assert lake.find_differences() == {}, "a partner got the value itself"


def bounded_as_before(spark: SparkSession, view: MaterializedView[Any], inputs: Mapping[str, Any]) -> dict[str, InputReach]:
    """What the probe once found for `by_group`."""
    found = probe.find_input_reaches(spark, view, inputs)
    return {**found, "parts": InputReach({"grp": "coalesce(grp, 'none')"}, None, found["parts"].used)}


def test_a_view_whose_bounds_are_found_to_be_others_is_recomputed_once(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(settings, spark, "by_group")
    with monkeypatch.context() as earlier:
        earlier.setattr(gold_view, "find_input_reaches", bounded_as_before)
        earlier.setattr(gold_view, "PROBE_RULES", 1)
        lake.run()
        lake.put((3, "z"))
        assert lake.run()["by_group"].startswith("keys")
    assert lake.find_differences(), "as an earlier Sluice left it"
    assert lake.run()["by_group"] == "full: what it uses of its inputs changed"
    assert lake.find_differences() == {}
    assert lake.run().get("by_group", "") == ""


@pytest.mark.thorough
def test_a_view_whose_bounds_stay_is_probed_once_more_and_not_recomputed(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(settings, spark, "by_group")
    with monkeypatch.context() as earlier:
        earlier.setattr(gold_view, "PROBE_RULES", 1)
        lake.run()
    probed: list[str] = []

    def count_probe(spark: SparkSession, view: MaterializedView[Any], inputs: Mapping[str, Any]) -> dict[str, InputReach]:
        probed.append(view.name)
        return probe.find_input_reaches(spark, view, inputs)

    monkeypatch.setattr(gold_view, "find_input_reaches", count_probe)
    assert [lake.run().get("by_group", ""), lake.run().get("by_group", "")] == ["", ""]
    assert probed == ["by_group"]
