"""Where a run's time went, and what would help: each rule by a run at its threshold, and by runs just below it."""

from __future__ import annotations

import ast
import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.runs.run_ledger import RUN_OBJECTS
from sluice.runs.status import diagnosis, run_times
from sluice.runs.status.diagnosis import diagnose_run
from sluice.runs.status.run_times import RunTimes, select_run_rows

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)


def row(flow: str = "visits", stage: str = "gold", seconds: float = 10.0, after: float = 0.0, **said: Any) -> dict[str, Any]:
    """A row of the run ledger, as it is read. after: when its stage began; it takes 20 seconds."""
    began = AT + timedelta(seconds=after)
    names = ("mode", "rows_in", "rows_out", "written_by", "recomputed")
    common = {"run": "r1", "pipeline": "gym", "stage": stage, "flow": flow, "state": "done", "seconds": seconds}
    times = {"started_at": began, "ended_at": began + timedelta(seconds=20)}
    return {**dict.fromkeys(names), **{name: {} for name in RUN_OBJECTS}, **common, **times, **said}


def long_row(**said: Any) -> dict[str, Any]:
    """A row of a table that took 6 seconds, for which a remedy is worth the effort."""
    return row(seconds=6.0, **said)


def copying_row(copied: int = 100_000, changed: int = 9_999, files: int = 2, seconds: float = 6.0) -> dict[str, Any]:
    """A merge that changed a row for each ten that it copied, and one more."""
    return row(table_files={"rows_copied": copied, "files": files}, rows_out=changed, seconds=seconds)


def starting_rows(*starts: float) -> list[dict[str, Any]]:
    """A stage for each process, with the seconds that its start took; the stages themselves take 20 seconds each."""
    return [row(stage=f"stage {number}", stage_steps={"starting Spark": start}) for number, start in enumerate(starts)]


def busy_rows(busy: float, took: float = 60.0, cores: int = 4) -> list[dict[str, Any]]:
    """Two tables of a stage, whose tasks took so many seconds together."""
    steps = {"tables": took}
    return [
        row("day", stage_steps=steps, spark={"task_seconds": busy / 2, "cores": cores}),
        row(stage_steps=steps, spark={"task_seconds": busy / 2, "cores": cores}),
    ]


MiB, GiB = 1024**2, 1024**3

CASES: dict[str, tuple[list[dict[str, Any]], list[list[dict[str, Any]]], str]] = {
    "unbounded change": (
        [row(recomputed="full: a change of 'prices' can touch any row")],
        [[row(recomputed="full: small table")], [row(recomputed="keys: 3 of 80 rows")], [row()]],
        "made again in full (a change of 'prices' can touch any row), 10.0 s",
    ),
    "declared full": (
        [long_row(recomputed="full: as declared")],
        [[row(recomputed="full: as declared", seconds=5.9)], [long_row(recomputed="full: first run")]],
        "made again in full, 6.0 s",
    ),
    "copied rows": (
        [copying_row()],
        [
            [copying_row(copied=99_999, changed=20)],
            [copying_row(changed=10_000)],
            [copying_row(files=1)],
            [copying_row(seconds=5.9)],
        ],
        "100,000 rows were copied to change 9,999",
    ),
    "start-up": (
        starting_rows(58.1, 1.0, 0.0, 0.0),
        [starting_rows(58.0, 1.0, 0.0, 0.0), starting_rows(60.0, 0.9, 0.0, 0.0), starting_rows(60.0)],
        "59 of 118 s went to the start of 2 processes",
    ),
    "lease": (
        [row(stage_steps={"waiting for the lease": 6.0})],
        [[row(stage_steps={"waiting for the lease": 5.9})], [row(stage_steps={"tables": 20.0})]],
        "waited 6 s",
    ),
    "storage": (
        [row(table_files={"files": 101, "bytes": 101 * 3_000_000 - 1})],
        [
            [row(table_files={"files": 100, "bytes": 100})],
            [row(table_files={"files": 101, "bytes": 101 * 3_000_000})],
        ],
        "101 files of 3.0 MB on average",
    ),
    "skew": (
        [row(spark={"skew": 3.2, "longest_task_seconds": 6.0})],
        [
            [row(spark={"skew": 3.1, "longest_task_seconds": 40.0})],
            [row(spark={"skew": 9.5, "longest_task_seconds": 5.9})],
        ],
        "the longest task took 6 s, 3.2 times the median one",
    ),
    "garbage collection": (
        [row(spark={"task_seconds": 6.0, "gc_seconds": 0.61})],
        [
            [row(spark={"task_seconds": 6.0, "gc_seconds": 0.59})],
            [row(spark={"task_seconds": 5.9, "gc_seconds": 5.9})],
        ],
        "10% of 6 s of its tasks",
    ),
    "serialisation": (
        [row(spark={"task_seconds": 6.0, "serialisation_seconds": 1.5})],
        [
            [row(spark={"task_seconds": 6.0, "serialisation_seconds": 1.49})],
            [row(spark={"task_seconds": 5.9, "serialisation_seconds": 5.9})],
        ],
        "25% of 6 s of its tasks",
    ),
    "spill": (
        [row(spark={"spilled_bytes": 64 * MiB})],
        [[row(spark={"spilled_bytes": 64 * MiB - 1})]],
        "67 MB were spilled to disk",
    ),
    "shuffle": (
        [row(spark={"shuffle_bytes": GiB, "input_bytes": GiB // 3})],
        [
            [row(spark={"shuffle_bytes": GiB - 1, "input_bytes": 0})],
            [row(spark={"shuffle_bytes": 3 * GiB, "input_bytes": GiB})],
        ],
        "1,074 MB were shuffled, of less that was read",
    ),
    "failed tasks": (
        [row(spark={"failed_tasks": 1})],
        [[row(spark={"failed_tasks": 0})], [row()], [row(spark={"failed_tasks": 1}, state="failed")]],
        "1 task failed and was tried again",
    ),
    "idle cores": (
        busy_rows(119.0),
        [busy_rows(120.0), busy_rows(1.0, took=59.9), busy_rows(1.0, cores=0), [row(stage_steps={"tables": 60.0})]],
        "4 cores had nothing to do 50% of 60 s",
    ),
    "repeated reads": (
        [row(spark={"input_bytes": 256 * MiB, "tables_bytes": 128 * MiB})],
        [
            [row(spark={"input_bytes": 256 * MiB, "tables_bytes": 128 * MiB + 1})],
            [row(spark={"input_bytes": 256 * MiB - 1, "tables_bytes": 1 * MiB})],
            [row(spark={"input_bytes": 256 * MiB})],
        ],
        "268 MB were read of tables that have 134 MB: the same version 2.0 times",
    ),
    "planning": (
        [row(steps={"planning": 6.0}, seconds=11.9)],
        [
            [row(steps={"planning": 5.9}, seconds=6.0)],
            [row(steps={"planning": 6.0}, seconds=12.0)],
            [row(steps={"computing": 9.0})],
        ],
        "6.0 of 11.9 s",
    ),
    "streaming": (
        [row(steps={"streaming": 6.0}, seconds=11.9)],
        [[row(steps={"streaming": 5.9}, seconds=6.0)], [row(steps={"streaming": 6.0}, seconds=12.0)]],
        "6.0 of 11.9 s",
    ),
}
"""By the name of a rule: rows at its threshold, runs that lie just below it by one condition each, and the finding's text for the former."""


def list_rule_names() -> set[str]:
    """The names that the code gives to findings: in calls of Finding, and in the two tables from which the other calls take them."""
    calls = [
        node.args[0]
        for node in ast.walk(ast.parse(inspect.getsource(diagnosis)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding"
    ]
    assert {ast.unparse(name) for name in calls if not isinstance(name, ast.Constant)} == {"name", "step"}, "from the two tables"
    literal = {str(name.value) for name in calls if isinstance(name, ast.Constant)}
    return literal | {name for _, _, name, _ in diagnosis._SHARES} | set(diagnosis._OVERHEADS)


def test_no_rule_lacks_a_case_or_a_line_of_the_documentation() -> None:
    assert set(CASES) == list_rule_names()
    page = (Path(__file__).parents[4] / "docs" / "observe.md").read_text(encoding="utf-8")
    table = page.partition("| finding | reported if |")[2].partition("\n\n")[0]
    documented = {name for line in table.splitlines()[2:] for name in line.split("|")[1].strip().split(", ")}
    assert documented == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_reports_a_run_at_its_threshold_and_none_just_below(name: str) -> None:
    at_threshold, below, text = CASES[name]
    found = diagnose_run(RunTimes("r1", at_threshold))
    assert [one.rule for one in found] == [name], "and no other rule reports it"
    assert text in found[0].found and found[0].remedy and found[0].subject
    for rows in below:
        assert diagnose_run(RunTimes("r1", rows)) == []


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
