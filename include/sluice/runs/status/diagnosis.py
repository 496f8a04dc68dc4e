"""Says what would help a run that took long, by the run ledger alone, without a JVM and without a cell's value.

Each problem that a run may have is a rule in `FINDING_RULES`: it examines the run's rows and reports a finding, with its numbers and the
declaration or setting that helps. To add a rule, add a function to that list, and its test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sluice.lake.flow_report import ANY_ROW, AS_DECLARED, read_reason_in_full
from sluice.pipeline_stages import OPTIMIZE
from sluice.printable import count_noun, match_number
from sluice.record_states import DONE
from sluice.runs.run_ledger import STAGE_STEPS, Row
from sluice.runs.status.run_times import RunTimes
from sluice.step_times import PLANNING, STARTING, STREAMING, TABLES, WAITING


@dataclass(frozen=True)
class Finding:
    """What was found about a table or stage, with its numbers, and what helps."""

    rule: str
    subject: str
    found: str
    remedy: str


# ------------------------------------------------------------------------------------------------ the rules

_TENTH_OF_MINUTE = 6.0
"""Seconds below which no remedy is worth the effort."""


def find_unbounded_changes(rows: Sequence[Row]) -> Iterator[Finding]:
    """Views that were recomputed in full because no column bounds what a change of an input can touch."""
    for row in rows:
        why = read_reason_in_full(row["recomputed"]) or ""
        if ANY_ROW in why:
            yield Finding(
                "unbounded change",
                row["flow"],
                f"made again in full ({why}), {row['seconds']:.1f} s",
                f"hand a column of that input on to the view, best one of its keys, or declare reach=; "
                f"sluice check {row['pipeline']} --plans shows what bounds each input",
            )


def find_declared_full(rows: Sequence[Row]) -> Iterator[Finding]:
    """Views that are recomputed in full as declared, and take long."""
    for row in rows:
        if read_reason_in_full(row["recomputed"]) == AS_DECLARED and row["seconds"] >= _TENTH_OF_MINUTE:
            remedy = 'recompute="auto", unless its transform asks for rows while it is called, or most of it changes each time'
            yield Finding("declared full", row["flow"], f"made again in full, {row['seconds']:.1f} s", remedy)


MOST_COPIED = 10
"""How many rows a merge may copy for each row that it changes. Source: docs/observe.md."""
_FEW_COPIED = 100_000


def find_copied_rows(rows: Sequence[Row]) -> Iterator[Finding]:
    """Merges that copied many rows to change few."""
    for row in rows:
        copied, changed = int(row["table_files"].get("rows_copied", 0)), max(int(row["rows_out"] or 0), 1)
        several = int(row["table_files"].get("files", 0)) > 1  # a merge copies a table of one file completely, whatever its order
        if several and row["seconds"] >= _TENTH_OF_MINUTE and copied >= _FEW_COPIED and copied > MOST_COPIED * changed:
            yield Finding(
                "copied rows",
                row["flow"],
                f"{count_noun(copied, 'row', 'was', 'were')} copied to change {changed:,}",
                "zorder_by= (or partition_by=) the columns that changes come by, so that a change falls into few files",
            )


def find_start_up(rows: Sequence[Row]) -> Iterator[Finding]:
    """Runs whose processes took longer to start than to work."""
    stages = RunTimes("", rows).stages
    starts = [float(stage.get(STARTING) or 0.0) for stage in stages]
    total = sum(float(stage["seconds"]) for stage in stages)
    begun = [start for start in starts if start >= 1]
    if len(begun) > 1 and sum(starts) > total / 2:
        yield Finding(
            "start-up",
            "all stages",
            f"{sum(starts):.0f} of {total:.0f} s went to the start of {count_noun(len(begun), 'process')}",
            'Pipeline(stages="together") runs the layers in one process; sluice run --keep-running keeps one',
        )


def find_lease_waits(rows: Sequence[Row]) -> Iterator[Finding]:
    """Stages that waited for another writer."""
    for stage in RunTimes("", rows).stages:
        if (stage.get(WAITING) or 0.0) >= _TENTH_OF_MINUTE:
            yield Finding(
                "lease",
                stage["stage"],
                f"waited {stage[WAITING]:.0f} s for the pipeline's lease",
                "two runs of one pipeline overlap: let the schedule leave time, or max_active_runs=1",
            )


_MANY_FILES, _SMALL_FILE = 100, 3_000_000
"""Source: DataFlint's rule on reading small files, as docs/observe.md says."""


def find_small_files(rows: Sequence[Row]) -> Iterator[Finding]:
    """Tables of many small files, at the end of the run."""
    for row in {row["flow"]: row for row in rows if row["table_files"]}.values():
        files, size = int(row["table_files"].get("files", 0)), int(row["table_files"].get("bytes", 0))
        if files > _MANY_FILES and size < files * _SMALL_FILE:
            yield Finding(
                "storage",
                row["flow"],
                f"{count_noun(files, 'file')} of {size / files / 1e6:.1f} MB on average",
                f"the stage {OPTIMIZE.name} joins them within a partition; partition_by= a coarser column, or none",
            )


_SEVERE_SKEW = 3.2
"""The ratio of the longest task to the median one from which Dr. Elephant calls it severe."""


def find_skewed_tasks(rows: Sequence[Row]) -> Iterator[Finding]:
    """Flows in which one task took much longer than the others."""
    for row in rows:
        skew, longest = row["spark"].get("skew", 0.0), row["spark"].get("longest_task_seconds", 0.0)
        if skew >= _SEVERE_SKEW and longest >= _TENTH_OF_MINUTE:
            yield Finding(
                "skew",
                row["flow"],
                f"the longest task took {longest:.0f} s, {skew:.1f} times the median one",
                "a key with very many rows: aggregate before the join, or let spark.sql.adaptive.skewJoin split it",
            )


_SHARES: tuple[tuple[str, float, str, str], ...] = (
    ("gc_seconds", 0.10, "garbage collection", "more spark.driver.memory (or executor memory), by the environment's profile"),
    ("serialisation_seconds", 0.25, "serialisation", "fewer and larger tasks, and no Python function where Spark has one"),
)
"""Parts of the tasks' time: the count, the share from which it is reported, its name, the remedy. The first is Dr. Elephant's "moderate"."""


def find_wasted_task_time(rows: Sequence[Row]) -> Iterator[Finding]:
    """Flows whose tasks spent much of their time on other things than rows."""
    for row in rows:
        spent = row["spark"].get("task_seconds", 0.0)
        for count, most, name, remedy in _SHARES:
            share = row["spark"].get(count, 0.0) / spent if spent >= _TENTH_OF_MINUTE else 0.0
            if share >= most:
                yield Finding(name, row["flow"], f"{share:.0%} of {spent:.0f} s of its tasks", remedy)


_MUCH_SPILLED = 64 * 1024 * 1024
_MUCH_SHUFFLED = 1024 * 1024 * 1024


def find_spill_and_shuffle(rows: Sequence[Row]) -> Iterator[Finding]:
    """Flows that spilled rows to disk, or shuffled many times what they read."""
    for row in rows:
        spilled, moved = row["spark"].get("spilled_bytes", 0.0), row["spark"].get("shuffle_bytes", 0.0)
        if spilled >= _MUCH_SPILLED:
            remedy = "more spark.driver.memory (or executor memory), or more spark.sql.shuffle.partitions"
            yield Finding("spill", row["flow"], f"{spilled / 1e6:,.0f} MB were spilled to disk", remedy)
        if moved >= _MUCH_SHUFFLED and moved > 3 * row["spark"].get("input_bytes", 0.0):
            remedy = "filter and aggregate before joins; a small input can be broadcast"
            yield Finding("shuffle", row["flow"], f"{moved / 1e6:,.0f} MB were shuffled, of less that was read", remedy)


def find_failed_tasks(rows: Sequence[Row]) -> Iterator[Finding]:
    """Flows with tasks that were tried again."""
    for row in rows:
        if row["state"] == DONE and (failed := row["spark"].get("failed_tasks")):
            remedy = "the Spark log of the run says why; SLUICE_DEBUG=1 shows more (and may show data)"
            yield Finding(
                "failed tasks",
                row["flow"],
                f"{count_noun(round(failed), 'task')} failed and {match_number(round(failed), 'was', 'were')} tried again",
                remedy,
            )


_IDLE, _LONG = 0.5, 60.0
"""The share of the cores' time, and the seconds of a stage's tables, from which idle cores are reported. Source: DataFlint."""


def find_idle_cores(rows: Sequence[Row]) -> Iterator[Finding]:
    """Stages whose tables took long, and whose tasks kept less than half of the cores busy."""
    stages: dict[str, list[Row]] = {}
    for row in rows:
        stages.setdefault(row["stage"], []).append(row)
    for stage, ours in stages.items():
        cores = max((row["spark"].get("cores", 0.0) for row in ours), default=0.0)
        took = float(ours[0][STAGE_STEPS].get(TABLES, 0.0))
        busy = sum(row["spark"].get("task_seconds", 0.0) for row in ours)
        idle = 1 - busy / (cores * took) if cores and took >= _LONG else 0.0
        if idle > _IDLE:
            yield Finding(
                "idle cores",
                stage,
                f"{count_noun(round(cores), 'core')} had nothing to do {idle:.0%} of {took:.0f} s",
                "where its tables wait for each other or have few tasks: more spark.sql.shuffle.partitions, several files instead of a "
                "large one that cannot be split; where they plan and commit: fewer cores are enough",
            )


_READ_AGAIN, _WORTH_TELLING = 2.0, 256 * 1024 * 1024


def find_repeated_reads(rows: Sequence[Row]) -> Iterator[Finding]:
    """Flows that read more bytes than their inputs and their own table have together: they read some version at least twice."""
    for row in rows:
        read, there = row["spark"].get("input_bytes", 0.0), row["spark"].get("tables_bytes", 0.0)
        if there and read >= _WORTH_TELLING and read >= _READ_AGAIN * there:
            yield Finding(
                "repeated reads",
                row["flow"],
                f"{read / 1e6:,.0f} MB were read of tables that have {there / 1e6:,.0f} MB: the same version {read / there:.1f} times",
                "name an input once in the transform, and join or group what was made of it; or make what is used twice a table of its own",
            )


_OVERHEADS = {
    PLANNING: "a transform with very many columns or nested expressions: split it into two tables",
    STREAMING: "much of it is listing what is new: larger and fewer deliveries, and vacuumed logs",
}


def find_overheads(rows: Sequence[Row]) -> Iterator[Finding]:
    """Flows that took long for other things than rows."""
    for row in rows:
        for step, remedy in _OVERHEADS.items():
            took = float(row["steps"].get(step, 0.0))
            if took >= _TENTH_OF_MINUTE and took > float(row["seconds"] or 0.0) / 2:
                yield Finding(step, row["flow"], f"{took:.1f} of {row['seconds']:.1f} s", remedy)


FINDING_RULES: tuple[Callable[[Sequence[Row]], Iterator[Finding]], ...] = (
    find_unbounded_changes,
    find_declared_full,
    find_copied_rows,
    find_start_up,
    find_lease_waits,
    find_small_files,
    find_skewed_tasks,
    find_wasted_task_time,
    find_spill_and_shuffle,
    find_failed_tasks,
    find_idle_cores,
    find_repeated_reads,
    find_overheads,
)
"""Everything that `sluice why` looks for, in the order of its output."""


def diagnose_run(times: RunTimes) -> list[Finding]:
    """Returns what stands out of a run, by all rules."""
    return [finding for rule in FINDING_RULES for finding in rule(times.rows)]
