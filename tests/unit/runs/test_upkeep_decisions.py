"""What the run ledger keeps of upkeep that left a table as it was: each "no", with its reason. Without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice import vacuum
from sluice.cli.tables.upkeep import describe_table_vacuums
from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.delta_log import LOG
from sluice.erasure import physical
from sluice.ingest.delivery_tables import DELIVERIES
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.workspace import Workspace
from sluice.record_tables import create_record_table
from sluice.runs import job, run_ledger, summary
from sluice.runs.execution import upkeep
from sluice.runs.execution.stages import StageOptions
from sluice.runs.keep_running.keeping import PipelineKeeper
from sluice.settings import Settings

PIPELINE = Pipeline(name="wards", description="Wards.", owner="t", layers=("wards.bronze", __name__))
STAYS = Source(name="stays", schema="patient STRING")
stay = table(name="stay", reads="stays", keys="patient", sql="SELECT patient FROM stays")


@pytest.fixture
def wards(settings: Settings) -> Workspace:
    """A pipeline with a table, its quarantine and a record table, of one file each."""
    session: Any = None  # no Spark is asked
    found = Workspace(settings, build_declaration_graph(PIPELINE, (STAYS, stay)), session, "r1")
    for path in (found.path("stay"), found.quarantine("stay")):
        write_deltalake(path, pa.table({"patient": ["p"]}), mode="append")
    create_record_table(found.deliveries, DELIVERIES)
    return found


def record_stage(wards: Workspace, stage: str, reports: list[FlowReport]) -> dict[str, str]:
    """Records the reports as a run does, and reads the decisions back."""
    report = summary.summarize_run("r1", "wards", stage, "increment", 0.1, reports)
    run_ledger.append_report_rows(wards.records, job.JobRequest("wards", stage), report, datetime.now(UTC), {}, {})
    return {row["flow"]: row["decision"] for row in run_ledger.read_run_ledger(wards.records) if row["stage"] == stage}


def test_the_run_ledger_keeps_why_a_table_was_not_rewritten(wards: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.optimize.rewrite_int96_files", lambda *asked: None)  # it marks commits in the session
    kept = record_stage(wards, "optimize", upkeep.run_optimize_stage(wards, "optimize", StageOptions()))
    assert kept["stay"] == kept["stay_quarantine"] and kept["stay"].startswith(
        "no: 1 file; 0 B of new data since the last rewrite, which left "
    )
    assert kept["_sluice/deliveries"].startswith("no: 0 files; no join makes 32 fewer ")
    assert set(kept) == {"stay", "stay_quarantine", "_sluice/deliveries"}


def test_a_session_that_is_kept_running_records_a_decision_when_its_reason_changes(wards: Workspace) -> None:
    keeper = PipelineKeeper(wards, job.JobRequest("wards", ""), 0.0, 0.0)

    def keep(decision: str) -> list[FlowReport]:
        return keeper.select_recorded("optimize", [FlowReport("stay", "silver", decision=decision)])

    assert record_stage(wards, "optimize", keep("no: 12 of 40 files overlap")) == {"stay": "no: 12 of 40 files overlap"}
    assert not keep("no: 13 of 41 files overlap"), "else each look would add a row, since the ledger has a decision too"
    assert keep("no: no data came since the last rewrite") and not keep("no: no data came since the last rewrite")
    assert keep("no: 2 of 3 files overlap; rewriting 3.1 MB is more than the budget of 980 KB")
    assert not keep("no: 2 of 3 files overlap; rewriting 980 KB is more than the budget of 1.2 MB")


def test_a_table_whose_log_cannot_be_read_keeps_no_record_table_from_its_turn(
    wards: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, path = vacuum.decide_vacuum, wards.path("stay")

    def decide_or_fail(table: str, *rest: Any) -> Any:
        if table == path:
            max(Path(path, LOG).glob("*.json")).write_bytes(b"")
            raise OSError("the disk does not answer")
        return decide(table, *rest)

    monkeypatch.setattr(vacuum, "decide_vacuum", decide_or_fail)
    monkeypatch.setattr(physical, "finish_physical_erasure", lambda *_: [FlowReport("stay", "vacuum", deleted=1)])
    with pytest.raises(FlowsFailed) as failed:
        upkeep.run_vacuum_stage(wards, "vacuum", StageOptions())
    assert [str(error) for error in failed.value.errors.values()] == ["the disk does not answer"]
    reports = {report.flow: report for report in failed.value.reports}
    assert reports["stay"].deleted == 1 and "_sluice/deliveries" in reports


def test_each_table_that_a_dry_run_names_is_vacuumed_by_its_name(wards: Workspace) -> None:
    """Sluice's own records are among them."""
    names = [row["table"] for row in describe_table_vacuums(wards.lake)]
    assert {"stay", "_sluice/deliveries"} <= set(names)
    for name in names:
        (report,) = upkeep.vacuum_named_table(wards, name)
        assert report.flow == name and report.decision.startswith("no: ")
