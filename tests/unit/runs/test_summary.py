"""What a run's report says about a flow: "nothing new" only if nothing was there and nothing failed."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.lake.flow_report import FlowReport
from sluice.runs import summary


def note(failed: bool = False, **counts: Any) -> str:
    """The note of one flow, in a run's report."""
    report = FlowReport("sale", "silver", version_before=3, **{"version_after": 3, **counts})
    flows = summary.summarize_run("run", "shop", "silver", "increment", 1.0, [report], {"sale"} if failed else set())["flows"]
    return str(flows[0]["note"])


def test_nothing_new_is_said_of_a_flow_that_was_given_nothing() -> None:
    assert note() == summary.NOTHING_NEW
    assert note(version_after=4) == ""
    assert note(notes=["rebased: its transform changed"]) == "rebased: its transform changed"


@pytest.mark.parametrize(
    "counted", ["deliveries", "rows_in", "rows_out", "quarantined", "dropped", "suppressed", "late", "unfollowed"]
)
def test_nothing_new_never_stands_beside_files_or_rows(counted: str) -> None:
    assert note(**{counted: 1}) == "", "a missed file is a delivery, too"


def test_nothing_new_never_stands_beside_a_failure() -> None:
    assert note(failed=True) == "failed"
    assert note(failed=True, notes=["rebased: its transform changed"]) == "rebased: its transform changed; failed"


def test_the_report_of_several_stages_has_what_they_took_together() -> None:
    stages = [
        {"stage": name, "seconds": seconds, "committed": False, "flows": [], "stage_cpu_seconds": cpu, "stage_steps": steps}
        for name, seconds, cpu, steps in (
            ("bronze", 10.0, 100.0, {"tables": 8.0}),
            ("silver", 5.0, 50.0, {"tables": 4.0, "lease": 1.0}),
        )
    ]
    joined = summary.join_stage_reports("layers", stages)
    assert (joined["stage_cpu_seconds"], joined["stage_steps"]) == (150.0, {"tables": 12.0, "lease": 1.0})
    assert summary.join_stage_reports("layers", [{**stages[0], "stage_cpu_seconds": None}])["stage_cpu_seconds"] is None
