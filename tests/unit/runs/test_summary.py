"""What a run's report says about a flow: "nothing new" only if nothing was there and nothing failed."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.lake.report import FlowReport
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
