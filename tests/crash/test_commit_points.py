"""A crash before or after any commit, and another run: the tables are as if nothing had happened."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import LAKES, Lakehouse, copy_roots, settings_at

from sluice import record_tables
from sluice.declare import F, Pipeline, Source, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.locations import is_on_disk, locate, remove_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = [pytest.mark.crash, pytest.mark.on_store(first=True)]

DELIVERED = 1_767_225_600
"""The first second of 2026, when the first file came."""


class Crash(BaseException):
    """Stands for a killed process: nothing of Sluice catches it."""


visits = Source(
    name="visits",
    format="csv",
    path="visits",
    redelivery="replace",
    comment="Visits.",
    schema="who STRING, day DATE, minutes INT",
)


@table(reads="visits", keys=("who", "day"), zorder_by="day")
@expect_or_quarantine("stays", "minutes > 0")
def visit(visits: DataFrame) -> DataFrame:
    """A visit."""
    return visits.select("who", "day", "minutes")


@materialized_view(reads="visit", keys="day")
def by_day(visit: DataFrame) -> DataFrame:
    """Minutes a day."""
    return visit.groupBy("day").agg(F.sum("minutes").alias("minutes"), F.count(F.lit(1)).alias("visits"))


POINTS = [
    ("sluice.flows.bronze.intake", "commits.append_rows"),
    ("sluice.ingest.delivery_tables", "append_delivery_ledger_rows"),
    ("sluice.flows.bronze.intake", "accounting.build_outcome_rows"),
    ("sluice.flows.bronze.intake", "accounting.add_outcomes_to_report"),
    ("sluice.quality.quarantine", "commits.replace_rows_of_deliveries"),
    ("sluice.flows.silver.fold", "apply_merge_operations"),
    ("sluice.flows.gold.view_batch", "apply_merge_operations"),
    ("sluice.lake.small_writes", "complete_commit"),
    ("sluice.record_tables", "_finish_commit"),
]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """A lake after the run before the one that crashes, to be copied."""
    pipeline = Pipeline(name="visits", description="v", owner="t", layers=("pipelines.visits.bronze", __name__))
    lake = Lakehouse(
        settings_at(tmp_path_factory.mktemp("visits")), spark, build_declaration_graph(pipeline, [visits, visit, by_day])
    )
    lake.land("visits/1.csv", "who,day,minutes\na,2026-01-01,5\nb,2026-01-01,-1\nragged\n", at=DELIVERED)
    lake.run()
    return lake


@pytest.fixture
def lake(first: Lakehouse, tmp_path: Path) -> Lakehouse:
    return Lakehouse(copy_roots(first.settings, tmp_path), first.spark, first.graph)


IN_ITS_WAY = [
    ("sluice.record_tables", "_finish_commit", False),
    ("sluice.lake.small_writes", "complete_commit", True),
    ("sluice.quality.quarantine", "commits.replace_rows_of_deliveries", False),
    ("sluice.flows.bronze.intake", "commits.append_rows", False),
    ("sluice.flows.bronze.intake", "accounting.build_outcome_rows", False),
    ("sluice.ingest.delivery_tables", "append_delivery_ledger_rows", True),
    ("sluice.flows.bronze.intake", "accounting.add_outcomes_to_report", True),
    ("sluice.flows.silver.fold", "apply_merge_operations", True),
    ("sluice.flows.gold.view_batch", "apply_merge_operations", False),
]
"""Every point once, in the order of a run: each has something left to do after a crash at those before it."""
assert sorted(point[:2] for point in IN_ITS_WAY) == sorted(POINTS), "make test would leave one out"


def cases() -> list[Any]:
    """Every point alone, before and after."""
    names = {point: f"{point[0].rsplit('.', 1)[1]}.{point[1]}" for point in POINTS}
    return [
        pytest.param([(*point, after)], id=f"{name}-{'after' if after else 'before'}", marks=pytest.mark.slow)
        for point, name in names.items()
        for after in (False, True)
    ]


def crash_at(monkeypatch: pytest.MonkeyPatch, module: str, function: str, after: bool) -> list[bool]:
    """Makes the first call of a function crash, before or after its work. The returned list has an entry once it did."""
    owner: Any = importlib.import_module(module)
    *inner, name = function.split(".")
    for part in inner:
        owner = getattr(owner, part)
    real, crashed = getattr(owner, name), []

    def crashing(*arguments: Any, **options: Any) -> Any:
        if not crashed and after:
            real(*arguments, **options)
        if not crashed:
            crashed.append(True)
            raise Crash
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, crashing)
    return crashed


@pytest.mark.parametrize("crashes", [pytest.param(IN_ITS_WAY, id="one-after-another"), *cases()])
def test_a_crash_changes_nothing(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, crashes: list[tuple[str, str, bool]]) -> None:
    """crashes: at each of them a run ends, and the next one begins."""
    later = "who,day,minutes\na,2026-01-01,7\nc,2026-01-02,1\nd,2026-01-02,-3\nragged,again\n"
    lake.land("visits/1.csv", later, at=DELIVERED + 1)
    lake.land("visits/2.csv", "who,day,minutes\nd,2026-01-03,4\ne,2026-01-03,0\n", at=DELIVERED + 2)
    for point in crashes:
        with monkeypatch.context() as patch:
            crash_at(patch, *point)
            with pytest.raises(Crash):
                lake.run()
    lake.run()
    assert lake.rows("visits", "who", "_delivery") == [("a", 1), ("a", 2), ("b", 1), ("c", 2), ("d", 2), ("d", 3), ("e", 3)]
    assert [(r[0], r[1]) for r in lake.rows("visits_quarantine", "_delivery", "record")] == [(1, "ragged"), (2, "ragged,again")]
    assert [(str(r[1]), r[0], r[2]) for r in lake.rows("visit", "who", "day", "minutes")] == [
        ("2026-01-01", "a", 7),
        ("2026-01-02", "c", 1),
        ("2026-01-03", "d", 4),
    ]
    assert lake.rows("visit_quarantine", "_delivery") == [(2,), (3,)]
    assert [(str(r[0]), r[1], r[2]) for r in lake.rows("by_day")] == [
        ("2026-01-01", 7, 1),
        ("2026-01-02", 1, 1),
        ("2026-01-03", 4, 1),
    ]
    states = [(row["delivery"], row["state"], row["rows"], row["quarantined"]) for row in lake.outcomes()]
    assert states == [(1, "ingested", 2, 1), (2, "ingested", 3, 1), (3, "ingested", 2, 0)]


ON_DISK = (("sluice.lake.table_creation", "create_empty_table"), ("sluice.lake.rowless_commits", "complete_commit"))
ON_STORE = ("sluice.lake.table_creation", "_build_table")
"""How tables are made: on a disk through delta-rs, on a store by Spark."""
FIRST_RUN = [
    pytest.param(module, function, after, marks=() if (module, function) == ON_DISK[1] and not after else pytest.mark.slow)
    for module, function in (*ON_DISK, *POINTS)
    for after in (False, True)
]


@pytest.mark.parametrize(("module", "function", "after"), FIRST_RUN)
def test_a_crash_in_the_first_run_changes_nothing(
    first: Lakehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch, module: str, function: str, after: bool
) -> None:
    """`test_lost_files.py` covers a kill while a table is being made; here are the kills before and after."""
    if LAKES and (module, function) in ON_DISK:
        module, function = ON_STORE
    lake = Lakehouse(settings, first.spark, first.graph)
    lake.land("visits/1.csv", "who,day,minutes\na,2026-01-01,5\nb,2026-01-01,-1\nragged\n", at=DELIVERED)
    crashed = crash_at(monkeypatch, module, function, after)
    with pytest.raises(Crash):
        lake.run()
    monkeypatch.undo()
    lake.run()
    assert crashed
    for name in ("visits", "visits_quarantine", "visit", "visit_quarantine", "by_day"):
        columns = _lasting(first, name)
        assert lake.rows(name, *columns) == first.rows(name, *columns), name
    facts = ("delivery", "state", "rows", "quarantined")
    assert [[row[name] for name in facts] for row in lake.outcomes()] == [
        [row[name] for name in facts] for row in first.outcomes()
    ]


def test_a_crash_while_records_are_joined_changes_nothing(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the commit that has them joined, and after it; each time deliveries follow."""
    monkeypatch.setattr(record_tables, "MOST_SMALL_FILES", 1)
    monkeypatch.setattr(record_tables, "LEAST_GROWTH", 0.0)
    for number, after in ((2, False), (3, True)):
        lake.land(f"visits/{number}.csv", f"who,day,minutes\nd,2026-01-0{number},4\n", at=DELIVERED + number)
        lake.run("bronze")
        with monkeypatch.context() as crashing:
            crash_at(crashing, "sluice.record_tables", "complete_commit", after)
            with pytest.raises(Crash):
                lake.run("optimize")
    lake.land("visits/4.csv", "who,day,minutes\ne,2026-01-03,1\n", at=DELIVERED + 4)
    lake.run()
    lake.run("optimize")
    assert [(row["delivery"], row["state"], row["rows"]) for row in lake.outcomes()] == [
        (1, "ingested", 2),
        (2, "ingested", 1),
        (3, "ingested", 1),
        (4, "ingested", 1),
    ]
    assert [(str(row[0]), row[1], row[2]) for row in lake.rows("by_day")] == [
        ("2026-01-01", 5, 1),
        ("2026-01-02", 4, 1),
        ("2026-01-03", 5, 2),
    ]


def test_a_crash_while_files_are_written_anew_changes_nothing(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the stages, when new files are in the table's folder and no commit names them.

    Every step is in `unit/lake/test_rewrite_kill_points.py`.
    """
    tables = locate(lake.settings.lake)
    if not is_on_disk(tables):
        pytest.skip("files of a store are not linked")
    for number in (2, 3):
        lake.land(f"visits/{number}.csv", f"who,day,minutes\nd,2026-01-0{number},4\n", at=DELIVERED + number)
        lake.run()
    with monkeypatch.context() as crashing:
        crashed = crash_at(crashing, "sluice.lake.file_rewrites", "_take_written_file", after=True)
        crashing.setattr("shutil.rmtree", lambda *folders, **how: None)
        with pytest.raises(Crash):
            lake.run("optimize")
    staged = [*tables.rglob(".spark-staging-layout-*")]
    assert crashed and staged
    lake.land("visits/4.csv", "who,day,minutes\ne,2026-01-03,1\n", at=DELIVERED + 4)
    lake.run()
    lake.run("vacuum")
    assert not any(one.exists() for one in staged)
    assert lake.run("optimize")["visit"].committed and not lake.run("optimize")["visit"].committed
    assert not any(report.committed for report in lake.run().values()), "who follows the table sees no change"
    assert [(str(row[0]), row[1], row[2]) for row in lake.rows("by_day")] == [
        ("2026-01-01", 5, 1),
        ("2026-01-02", 4, 1),
        ("2026-01-03", 5, 2),
    ]


def _lasting(lake: Lakehouse, name: str) -> list[str]:
    """The columns of a table that do not depend on the time at which it was made."""
    frame = lake.spark.read.format("delta").load(lake.workspace().lake.record_tables()[name])
    return [column for column in frame.columns if not column.endswith("_at")]


REPLAY_POINTS = [
    ("sluice.flows.bronze.intake", "commits.append_rows", True),
    pytest.param("sluice.flows.bronze.intake", "accounting.build_outcome_rows", True, marks=pytest.mark.slow),
    pytest.param("sluice.quality.quarantine", "commits.replace_rows_of_deliveries", True, marks=pytest.mark.slow),
    pytest.param("sluice.flows.silver.fold", "apply_merge_operations", False, marks=pytest.mark.slow),
    pytest.param("sluice.flows.silver.fold", "apply_merge_operations", True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("then", ["increment", pytest.param("replay", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("module", "function", "after"), REPLAY_POINTS)
def test_a_crashed_replay_changes_nothing(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, module: str, function: str, after: bool, then: str
) -> None:
    """The next run, an increment or the replay again, writes nothing twice and leaves nothing out."""
    lake.land("visits/1.csv", "who,day,minutes\na,2026-01-01,7\nc,2026-01-02,-2\nragged,again\n", at=DELIVERED + 3600)
    crash_at(monkeypatch, module, function, after)
    with pytest.raises(Crash):
        lake.replay("2026-01-01", "2026-01-01")
    monkeypatch.undo()
    if then == "replay":
        lake.replay("2026-01-01", "2026-01-01")
    lake.run()
    assert lake.rows("visits", "who", "_delivery") == [("a", 1), ("a", 2), ("b", 1), ("c", 2)]
    assert [(r[0], r[1]) for r in lake.rows("visits_quarantine", "_delivery", "record")] == [(1, "ragged"), (2, "ragged,again")]
    assert [(str(r[1]), r[0], r[2]) for r in lake.rows("visit", "who", "day", "minutes")] == [("2026-01-01", "a", 7)]
    assert lake.rows("visit_quarantine", "_delivery") == [(2,)]
    states = [(row["delivery"], row["state"], row["rows"], row["quarantined"]) for row in lake.outcomes()]
    assert states == [(1, "ingested", 2, 1), (2, "ingested", 2, 1)]


def test_tables_that_are_gone_are_made_whole_even_by_a_run_after_one_that_crashed(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {name: lake.rows(name) for name in ("visit", "by_day")}
    for name in there:
        remove_folder(locate(lake.workspace().path(name)))
    crash_at(monkeypatch, "sluice.flows.writing.targets", "record_transform_fingerprint", after=False)
    with pytest.raises(Crash):
        lake.run()
    monkeypatch.undo()
    reports = lake.run()
    assert {name: lake.rows(name) for name in there} == there
    assert reports["visit"].notes == ["folded anew: its table was not there"]
