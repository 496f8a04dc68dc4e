"""Where a run's time went, and what would help: each rule by rows that it is about, and by rows that it is not about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice.runs.ledger import FLOW_OBJECTS, STAGE_STEPS
from sluice.runs.status import run_times
from sluice.runs.status.diagnosis import FINDING_RULES, diagnose_run
from sluice.runs.status.run_times import RunTimes, select_run_rows

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)


def row(flow: str = "visits", stage: str = "gold", seconds: float = 10.0, after: float = 0.0, **said: Any) -> dict[str, Any]:
    """A row of the run ledger, as it is read. after: when its stage began; it takes 20 seconds."""
    began = AT + timedelta(seconds=after)
    names = ("mode", "rows_in", "rows_out", "written_by", "recomputed")
    objects = (*FLOW_OBJECTS, STAGE_STEPS)
    common = {"run": "r1", "pipeline": "gym", "stage": stage, "flow": flow, "state": "done", "seconds": seconds}
    times = {"started_at": began, "ended_at": began + timedelta(seconds=20)}
    return {**dict.fromkeys(names), **{name: {} for name in objects}, **common, **times, **said}


FOUND: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], str]] = {
    "find_unbounded_changes": (
        [row(recomputed="full: a change of 'prices' can touch any row")],
        [row(recomputed="full: small table"), row(recomputed="keys: 3 of 80 rows"), row()],
        "a change of 'prices' can touch any row",
    ),
    "find_declared_full": (
        [row(recomputed="full: as declared")],
        [row(recomputed="full: as declared", seconds=1.0)],
        "10.0 s",
    ),
    "find_copied_rows": (
        [row(table_files={"rows_copied": 594_000, "files": 9}, rows_out=20)],
        [
            row(table_files={"rows_copied": 90_000, "files": 9}, rows_out=20),
            row(table_files={"rows_copied": 594_000, "files": 9}, rows_out=60_000),
            row(table_files={"rows_copied": 594_000, "files": 1}, rows_out=20),
            row(table_files={"rows_copied": 594_000, "files": 9}, rows_out=20, seconds=0.4),
        ],
        "594,000 rows were copied to change 20",
    ),
    "find_start_up": (
        [row(stage=stage, stage_steps={"starting Spark": 30.0}) for stage in ("silver", "gold")],
        [row(stage="silver", stage_steps={"starting Spark": 30.0}), row(stage_steps={})],
        "60 of 60 s went to the start of 2 processes",
    ),
    "find_lease_waits": (
        [row(stage_steps={"waiting for the lease": 12.0})],
        [row(stage_steps={"waiting for the lease": 2.0})],
        "waited 12 s",
    ),
    "find_small_files": (
        [row(table_files={"files": 400, "bytes": 400_000_000})],
        [row(table_files={"files": 90, "bytes": 90}), row(table_files={"files": 400, "bytes": 40_000_000_000})],
        "400 files of 1.0 MB on average",
    ),
    "find_skewed_tasks": (
        [row(spark={"skew": 9.5, "longest_task_seconds": 40.0})],
        [row(spark={"skew": 9.5, "longest_task_seconds": 2.0}), row(spark={"skew": 1.5, "longest_task_seconds": 40.0})],
        "9.5 times the median one",
    ),
    "find_wasted_task_time": (
        [row(spark={"task_seconds": 100.0, "gc_seconds": 20.0})],
        [row(spark={"task_seconds": 100.0, "gc_seconds": 5.0}), row(spark={"task_seconds": 1.0, "gc_seconds": 1.0})],
        "20% of 100 s",
    ),
    "find_spill_and_shuffle": (
        [row(spark={"spilled_bytes": 900_000_000})],
        [row(spark={"spilled_bytes": 1_000, "shuffle_bytes": 2_000_000_000, "input_bytes": 2_000_000_000})],
        "900 MB were spilled",
    ),
    "find_failed_tasks": (
        [row(spark={"failed_tasks": 2})],
        [row(), row(spark={"failed_tasks": 2}, state="failed")],
        "2 tasks failed",
    ),
    "find_idle_cores": (
        [row(stage_steps={"tables": 100.0}, spark={"task_seconds": 30.0, "cores": 4}), row("day", spark={"task_seconds": 10.0})],
        [
            row(stage_steps={"tables": 100.0}, spark={"task_seconds": 210.0, "cores": 4}),
            row(stage_steps={"tables": 50.0}, spark={"task_seconds": 1.0, "cores": 4}),
            row(stage_steps={"tables": 100.0}, spark={"task_seconds": 1.0}),
        ],
        "4 cores had nothing to do 90% of 100 s",
    ),
    "find_repeated_reads": (
        [row(spark={"input_bytes": 900_000_000, "tables_bytes": 300_000_000})],
        [
            row(spark={"input_bytes": 900_000_000, "tables_bytes": 500_000_000}),
            row(spark={"input_bytes": 900_000, "tables_bytes": 300_000}),
            row(spark={"input_bytes": 900_000_000}),
        ],
        "the same version 3.0 times",
    ),
    "find_overheads": (
        [row(steps={"planning": 7.0})],
        [row(steps={"planning": 4.0}), row(steps={"planning": 7.0}, seconds=60.0), row(steps={"computing": 9.0})],
        "7.0 of 10.0 s",
    ),
}
"""By rule: rows that it is about, rows that it is not about, and what it says of the first."""


@pytest.mark.parametrize("name", [rule.__name__ for rule in FINDING_RULES])
def test_a_rule_finds_what_it_is_about_and_nothing_else(name: str) -> None:
    about, others, said = FOUND[name]
    found = diagnose_run(RunTimes("r1", about))
    assert [one for one in found if said in one.found and one.remedy and one.subject], found
    assert {rule.__name__ for rule in FINDING_RULES if list(rule(about))} == {name}, "one thing is said once"
    for other in others:
        assert diagnose_run(RunTimes("r1", [other])) == []


def test_steps_and_the_rest_add_up_to_the_whole_and_a_row_of_before_has_no_steps() -> None:
    steps = {"looking": 0.5, "computing": 6.0, "writing": 1.0}
    (timed,) = RunTimes("r1", [row(steps=steps)]).tables
    assert {name: timed[name] for name in (*steps, "other")} == {**steps, "other": 2.5}
    (old,) = RunTimes("r1", [row()]).tables
    assert "other" not in old and old["seconds"] == 10.0
    (stage,) = RunTimes("r1", [row(stage_steps={"starting Spark": 30.0, "tables": 8.0})]).stages
    assert stage["seconds"] == 38.0, "the start of the process is longer than what the stage's own clock says"


def test_the_last_run_is_chosen_and_of_one_that_is_kept_running_the_last_round() -> None:
    rounds = [row(after=0), row(after=60, seconds=3.0), row(stage="optimize", after=70, seconds=None)]
    rows = [row(run="r0"), *rounds]
    chosen = select_run_rows(rows)
    assert chosen and chosen.run == "r1" and [one["seconds"] for one in chosen.rows] == [3.0, None]
    assert [one["table"] for one in chosen.tables] == ["visits"]
    assert select_run_rows(rows, "r0") is not None and select_run_rows(rows, "r9") is None and select_run_rows([]) is None


def test_small_files_that_the_run_has_joined_are_none() -> None:
    before, after = ({"files": 400, "bytes": 400_000_000}, {"files": 1, "bytes": 400_000_000})
    assert diagnose_run(RunTimes("r1", [row(table_files=before), row(stage="optimize", table_files=after)])) == []


def test_a_run_is_said_in_a_line() -> None:
    rows = [row("a", seconds=1.0), row("b", stage="silver", seconds=9.0, steps={"computing": 2.0, "writing": 5.0})]
    assert RunTimes("r1", rows).headline == ("run r1 took 40 s, gold 20 of them; b took longest, 9.0 s, 5.0 of them writing")
    assert RunTimes("r1", []).headline == "run r1 took 0 s"


def test_what_takes_longest_comes_first() -> None:
    rows = [row("a", seconds=1.0), row("b", seconds=9.0), row("c", seconds=0.0), row("d", seconds=4.0)]
    assert [one["table"] for one in RunTimes("r1", rows).tables] == ["b", "d", "a"]
    assert run_times.OTHER not in RunTimes("r1", rows).tables[0]
