"""What ends a stage ends it also out of a part that has turns of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import LeaseLost, SluiceError, StopRequested
from sluice.lake.flow_report import FlowReport, FlowsFailed, take_table_turns


@pytest.mark.parametrize("end", [LeaseLost("the lease is lost"), StopRequested("stopped on request")])
def test_what_ends_the_turns_of_a_part_after_a_failure_ends_the_stage(tmp_path: Path, end: SluiceError) -> None:
    path, done, broken = str(tmp_path / "table"), FlowReport(flow="whole", layer="vacuum"), OSError("the disk does not answer")

    def fail(error: Exception) -> FlowReport:
        raise error

    def take_inner_turns() -> list[FlowReport]:
        with take_table_turns("vacuum") as turns:
            turns.take_turn("whole", "vacuum", path, lambda: done)
            turns.take_turn("torn", "vacuum", path, lambda: fail(broken))
            turns.take_turn("late", "vacuum", path, lambda: fail(end))
        return turns.reports

    with pytest.raises(FlowsFailed) as failed, take_table_turns("erase") as turns:
        turns.reports += turns.take_part("removal_of_bytes", "erase", take_inner_turns)
        pytest.fail("the work went on")
    assert [report.flow for report in failed.value.reports] == ["whole", "torn"]
    assert failed.value.errors == {"torn": broken, "vacuum": end}
