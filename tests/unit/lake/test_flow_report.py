"""What ends a stage ends it also out of a part that has turns of its own; and facts are read from the sentences that they were written as."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import LeaseLost, SluiceError, StopRequested
from sluice.lake.flow_report import (
    FlowReport,
    FlowsFailed,
    has_begun_view_anew,
    has_made_all_rows,
    is_decided,
    read_bare_reason,
    read_reason_in_full,
    take_table_turns,
)


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


def test_facts_are_read_from_the_sentences_of_a_report_and_of_rows_of_earlier_runs() -> None:
    anew, replaced, view = FlowReport("sale", "silver"), FlowReport("sale", "silver"), FlowReport("by_day", "gold")
    anew.note_fold_anew("refresh")
    replaced.count_replacement(4)
    view.note_view_anew("refresh")
    view.note_full_recompute("small table")
    view.note_decision(False, "2 of 3 files overlap")
    assert (anew.notes, replaced.notes) == (["folded anew: refresh"], ["replaced, with other columns"])
    assert has_made_all_rows("; ".join(anew.notes)) and has_made_all_rows(replaced.notes[0]) and not has_made_all_rows(None)
    assert view.notes == ["recomputed in full: refresh"] and has_begun_view_anew(view.notes[0])
    assert view.recomputed == "full: small table" and read_reason_in_full(view.recomputed) == "small table"
    assert read_reason_in_full("keys: 3 of 9 rows") is None and read_reason_in_full(None) is None
    assert view.decision == "no: 2 of 3 files overlap" and not is_decided(view.decision) and is_decided("yes: demanded")
    assert read_bare_reason(view.decision) == read_bare_reason("no: 13 of 41 files overlap")
