"""Files that a kill or a power failure leaves cut, empty or missing, from the first run on: of tables being made, checkpoints and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.crash import test_commit_points as declared

from sluice import durable_files
from sluice.declare import Pipeline
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.delta_log import DamagedLog
from sluice.lake import pipeline_lake
from sluice.locations import locate
from sluice.privacy import suppression_list
from sluice.runs import job, stage_run
from sluice.runs.execution import stages
from sluice.runs.repair import lost_commits
from sluice.runs.run_ledger import WHOLE_STAGE, has_failed_as_whole, read_run_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.lake.flow_report import FlowReport
    from sluice.settings import Settings

pytestmark = [pytest.mark.crash, pytest.mark.on_store]

LAYER = "test_commit_points"
BEFORE_THE_FIRST_COMMIT = (
    ".00000000000000000000.json.1f0e.tmp",
    "_commit_1f0e.json.tmp",
    "..00000000000000000000.json.1f0e.tmp.crc",
)


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    pipeline = Pipeline(name="visits", description="v", owner="t", layers=("pipelines.visits.bronze", declared.__name__))
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, [declared.visits, declared.visit, declared.by_day]))


def begin_tables(lake: Lakehouse) -> None:
    """Leave of each table what a kill leaves that comes before its first commit, of all that the first run makes."""
    workspace = lake.workspace()
    books = [workspace.deliveries, workspace.outcomes, workspace.suppression, lake.records.run_ledger]
    for path in [*workspace.lake.record_tables().values(), *books]:
        for name in BEFORE_THE_FIRST_COMMIT:
            left = locate(path, "_delta_log", name)
            left.parent.mkdir(parents=True, exist_ok=True)
            left.write_text("{")


def run_stage(lake: Lakehouse, stage: str) -> dict[str, FlowReport]:
    """A stage as a job runs it, but for the lease."""
    workspace, found = lake.workspace(), []

    def work() -> list[FlowReport]:
        found.extend(stages.run_pipeline_stage(workspace, stage))
        return found

    stage_run.record_stage_run(workspace, job.JobRequest(lake.name, stage), work)
    return {report.flow: report for report in found}


def spoil_checkpoints(lake: Lakehouse) -> None:
    """Each flow's in another way: metadata cut, offsets empty, a commit of zeros."""
    for flow, pattern, content in (
        ("bronze_visits", "*/metadata", b'{"id":'),
        (f"{LAYER}_visit", "*/offsets/0", b""),
        (f"{LAYER}_by_day", "*/commits/0", b"\x00" * 30),
    ):
        (file,) = locate(lake.records.checkpoints(flow)).glob(pattern)
        file.write_bytes(content)


def days(lake: Lakehouse) -> list[tuple[str, int, int]]:
    return [(str(day), minutes, visits) for day, minutes, visits in lake.rows("by_day")]


def test_what_was_not_made_to_its_end_is_made_again_and_what_was_lost_is_made_up_or_refused(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_tables(lake)
    lake.land("visits/1.csv", "who,day,minutes\na,2026-01-01,5\nb,2026-01-01,-1\nragged\n")
    on_disk: list[str] = []
    real = durable_files.flush_run_output
    monkeypatch.setattr(durable_files, "flush_run_output", lambda settings: on_disk.append("all") or real(settings))
    run_stage(lake, "bronze")
    run_stage(lake, LAYER)
    suppression_list.create_suppression_list(lake.workspace())
    assert on_disk == ["all", "all"]
    assert lake.rows("visits", "who", "_delivery") == [("a", 1), ("b", 1)] and days(lake) == [("2026-01-01", 5, 1)]

    spoil_checkpoints(lake)
    lake.land("visits/2.csv", "who,day,minutes\nc,2026-01-02,7\n")
    reports = run_stage(lake, "bronze") | run_stage(lake, LAYER)
    assert lake.rows("visits", "who", "_delivery") == [("a", 1), ("b", 1), ("c", 2)]
    assert days(lake) == [("2026-01-01", 5, 1), ("2026-01-02", 7, 1)]
    for flow, file in (("visits", "metadata"), ("visit", "offsets/0"), ("by_day", "commits/0")):
        assert any(file in note and "its checkpoint is damaged" in note for note in reports[flow].notes), reports[flow].notes

    for table, spoilt, unharmed in (("visit", (LAYER, "optimize"), "bronze"), ("visits", ("bronze", LAYER, "optimize"), None)):
        last = max(locate(lake.workspace().path(table), "_delta_log").glob("*.json"))
        last.write_bytes(last.read_bytes()[:100] if table == "visits" else b"")
        for stage in spoilt:
            with pytest.raises(DamagedLog, match=rf"table '{table}' \(.*{last.name} is .*sluice repair visits"):
                run_stage(lake, stage)
            row = read_run_ledger(lake.records)[-1]
            assert (row["stage"], row["flow"], row["state"], row["failure"]) == (stage, WHOLE_STAGE, "failed", "DamagedLog")
            assert has_failed_as_whole(lake.records, stage)
        if unharmed:
            pipeline_lake.check_stage_logs(lake.lake, unharmed)
        (found,) = lost_commits.find_log_repairs(lake.lake)
        lost_commits.repair_table_log(lake.lake, found)
    jvm: Any = lake.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # the next run is another process
    lake.land("visits/3.csv", "who,day,minutes\nd,2026-01-03,9\n")
    reports = run_stage(lake, "bronze") | run_stage(lake, LAYER)
    assert lake.rows("visits", "who", "_delivery") == [("a", 1), ("b", 1), ("c", 2), ("d", 3)]
    assert [row["state"] for row in lake.outcomes()] == ["ingested"] * 3
    assert days(lake) == [("2026-01-01", 5, 1), ("2026-01-02", 7, 1), ("2026-01-03", 9, 1)]
    assert not has_failed_as_whole(lake.records, LAYER) and has_failed_as_whole(lake.records, "optimize")
    stage_run.record_stage_run(lake.workspace(), job.JobRequest(lake.name, "optimize"), list)
    assert not has_failed_as_whole(lake.records, "optimize"), "a stage that goes well and reports on no table is over it, too"
    ours = [row["state"] for row in read_run_ledger(lake.records) if row["flow"] == WHOLE_STAGE]
    assert ours.count("done") == 3, "once for each stage"
    assert all("was lost" in str(reports[flow].notes) for flow in ("visits", "visit", "by_day"))
