"""How a large first load differs from a small one: it is appended, and no copy of it is kept; the rows are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse, copied_lakehouse, settings_at
from tests.crash.test_commit_points import Crash, by_day, crash_at, visit, visits

from sluice.declare import Pipeline, Source, auto_cdc
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.flows.gold.view_batch import ViewBatch
from sluice.flows.silver import fold
from sluice.lake import commit_history, small_writes
from sluice.lake.flow_report import FlowReport
from sluice.verification.comparison import TablePart
from sluice.verification.verify import verify_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

feed = Source(
    name="feed", format="csv", path="feed", schema="id INT, region STRING, at INT, name STRING, gone BOOLEAN", comment="Changes."
)
person = auto_cdc(
    "person",
    reads="feed",
    keys=("region", "id"),
    sequence_by="at",
    apply_as_deletes="gone",
    partition_by="region",
    comment="People.",
)
FIRST = "who,day,minutes\na,2026-01-01,5\nb,2026-01-01,-1\na,2026-01-02,1\nc,2026-01-02,2\na,2026-01-01,9\n"


@pytest.fixture(scope="module", autouse=True)
def few_rows_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_writes, "MOST_ROWS", 1)
        patch.setattr(fold, "MOST_KEPT_ROWS", 1)
        yield


LAYERS = ("bronze", visit.declared_in.rpartition(".")[2], "gold")
"""The stages that the first load goes through."""


@dataclass
class FirstLoad:
    """A lake as each layer's first run left it, by the layer, to be copied, and what all of them reported."""

    after: dict[str, Lakehouse] = field(default_factory=dict)
    reports: dict[str, FlowReport] = field(default_factory=dict)


@pytest.fixture(scope="module")
def first_load(few_rows_are_many: None, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> FirstLoad:
    pipeline = Pipeline(
        name="visits", description="v", owner="t", layers=("pipelines.visits.bronze", visit.declared_in, "visits.gold")
    )
    graph = build_declaration_graph(pipeline, [visits, visit, replace(by_day, declared_in="visits.gold")])
    lake, load = Lakehouse(settings_at(tmp_path_factory.mktemp("visits")), spark, graph), FirstLoad()
    lake.land("visits/1.csv", FIRST)
    for layer in LAYERS:
        load.reports |= lake.run(layer)
        load.after[layer] = copied_lakehouse(lake, tmp_path_factory.mktemp(layer))
    return load


def list_writes(lake: Lakehouse, table: str) -> list[str]:
    """What was done to a table's rows, the first first."""
    commits = reversed(commit_history.read_commit_history(lake.workspace().path(table)))
    return [one["operation"] for one in commits if one["operation"] in ("WRITE", "MERGE", "DELETE")]


def test_the_first_load_is_one_append_and_later_ones_are_merged(first_load: FirstLoad, tmp_path: Path) -> None:
    lake, first = copied_lakehouse(first_load.after["gold"], tmp_path), first_load.reports
    assert {name: list_writes(lake, name) for name in ("visit", "by_day")} == {"visit": ["WRITE"], "by_day": ["WRITE"]}
    once = [(str(r[1]), r[0], r[2]) for r in lake.rows("visit", "who", "day", "minutes")]
    assert once[1:] == [("2026-01-02", "a", 1), ("2026-01-02", "c", 2)]
    assert once[0][:2] == ("2026-01-01", "a") and once[0][2] in (5, 9), "of the rows of a key one wins"
    assert (first["visit"].inserted, first["visit"].rows_in, first["visit"].rows_out) == (3, 5, 3)
    assert (first["by_day"].inserted, first["by_day"].recomputed) == (2, "full: first run")
    assert lake.rows("visit_quarantine", "_delivery") == [(1,)]
    lake.land("visits/2.csv", "who,day,minutes\nc,2026-01-02,2\nd,2026-01-03,4\ne,2026-01-03,5\n")
    second = lake.run()
    assert once[0] in [(str(r[1]), r[0], r[2]) for r in lake.rows("visit", "who", "day", "minutes")]
    assert list_writes(lake, "visit") == ["WRITE", "MERGE"]
    assert (second["visit"].inserted, second["visit"].updated, second["visit"].deleted) == (2, 0, 0)
    assert [(str(r[0]), r[1]) for r in lake.rows("by_day", "day", "visits")] == [
        ("2026-01-01", 1),
        ("2026-01-02", 2),
        ("2026-01-03", 2),
    ]


@pytest.mark.crash
@pytest.mark.parametrize(
    "module", ["sluice.flows.silver.fold", pytest.param("sluice.flows.gold.view_batch", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.slow), True], ids=["before", "after"])
def test_a_crash_at_the_append_loses_and_doubles_nothing(
    first_load: FirstLoad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, after: bool
) -> None:
    before, *left = LAYERS if module.endswith("fold") else LAYERS[1:]
    lake = copied_lakehouse(first_load.after[before], tmp_path)
    crashed = crash_at(monkeypatch, module, "fill_empty_table", after)
    with pytest.raises(Crash):
        lake.run(*left)
    reports = lake.run(*left)
    assert crashed
    assert len(lake.rows("visit", "who", "day")) == len(set(lake.rows("visit", "who", "day"))) == 3
    assert [(str(r[0]), r[1]) for r in lake.rows("by_day", "day", "visits")] == [("2026-01-01", 1), ("2026-01-02", 2)]
    assert not any(report.committed for report in lake.run(*left).values()) and reports


@pytest.mark.thorough
def test_a_target_of_changes_is_appended_and_an_empty_one_is_filled_later(settings: Settings, spark: SparkSession) -> None:
    pipeline = Pipeline(name="people", description="p", owner="t", layers=("people.bronze", person.declared_in))
    lake = Lakehouse(settings, spark, build_declaration_graph(pipeline, [feed, person]))
    lake.land("feed/1.csv", 'id,region,at,name,gone\n1,"",1,a,true\n2,north,1,b,true\n')
    lake.run()
    assert lake.rows("person") == [] and list_writes(lake, "person_changes") == ["WRITE"]
    lake.land("feed/2.csv", 'id,region,at,name,gone\n1,"",2,a,false\n2,north,0,late,false\n3,north,1,c,false\n4,"",1,d,false\n')
    lake.run()
    assert lake.rows("person", "id", "name", "region") == [(1, "a", None), (3, "c", "north"), (4, "d", None)]
    assert list_writes(lake, "person_changes") == ["WRITE", "MERGE"]
    # The log has the empty text, the partition has NULL: a part is of keys as the target has them.
    found = [
        one for number in (1, 2) for one in verify_tables(settings, spark, lake.graph, ["person"], part=TablePart(number, 2))
    ]
    assert [(one.equal, str(one)) for one in found] == [(True, str(found[0]))] * 2


@pytest.mark.thorough
def test_a_view_of_which_a_key_comes_twice_is_refused_as_before(
    first_load: FirstLoad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copied_lakehouse(first_load.after[LAYERS[1]], tmp_path)
    real = ViewBatch._judge_and_treat
    monkeypatch.setattr(ViewBatch, "_judge_and_treat", lambda self, rows: real(self, rows.unionAll(rows)))
    with pytest.raises(Exception, match="have a key"):
        lake.run("gold")
    assert lake.rows("by_day") == []
