"""Shows where the time of a run went, by the run ledger alone: its stages and tables, with the steps of each. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.printable import format_size
from sluice.record_states import DONE, FAILED
from sluice.runs.run_ledger import STAGE_CPU, STAGE_STEPS, Row
from sluice.step_times import FLOW_STEPS
from sluice.step_times import STAGE_STEPS as STEPS_OF_STAGE

OTHER = "other"
"""The time that no step accounts for."""


@dataclass(frozen=True)
class RunTimes:
    """A run, stage by stage and table by table.

    stages: stage, state, seconds and its steps. tables: rows of the run ledger that took time, the longest first, with the steps.
    """

    run: str
    rows: Sequence[Row]

    @property
    def stages(self) -> list[dict[str, Any]]:
        """A row for each stage, in the order in which they ran."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row["stage"], []).append(row)
        return [_summarize_stage(stage, rows) for stage, rows in found.items()]

    @property
    def tables(self) -> list[dict[str, Any]]:
        """A row for each flow that took time, the longest first."""
        timed = [row for row in self.rows if row["seconds"]]
        return [_summarize_flow_times(row) for row in sorted(timed, key=lambda row: -float(row["seconds"]))]

    @property
    def seconds(self) -> float:
        """From the start of the first stage to the end of the last, with the start of its process."""
        return round(sum(float(stage["seconds"]) for stage in self.stages), 1)

    @property
    def cpu_seconds(self) -> float | None:
        """The CPU seconds of its stages' processes. None if no stage was measured."""
        known = [stage["cpu_seconds"] for stage in self.stages if stage["cpu_seconds"] is not None]
        return round(sum(known), 1) if known else None

    @property
    def headline(self) -> str:
        """The run in a line: its seconds, its longest stage, and the longest table with its longest step."""
        said = f"run {self.run} took {self.seconds:.0f} s"
        stages = sorted(self.stages, key=lambda stage: -float(stage["seconds"]))
        if stages and self.seconds:
            said += f", {stages[0]['stage']} {stages[0]['seconds']:.0f} of them"
        for table in self.tables[:1]:
            steps = {name: table.get(name) or 0.0 for name in (*FLOW_STEPS, OTHER)}
            longest = max(steps, key=lambda name: steps[name])
            said += f"; {table['table']} took longest, {table['seconds']:.1f} s"
            said += f", {steps[longest]:.1f} of them {longest}" if steps[longest] else ""
        return said


def select_run_rows(rows: Sequence[Row], run: str | None = None) -> RunTimes | None:
    """Returns the rows of a run, or of the last one, or None. rows: from `read_run_ledger`.

    For a process that is kept running only the last round of each stage counts: it is one run for as long as it lives.
    """
    wanted = run or (rows[-1]["run"] if rows else None)
    ours = [row for row in rows if row["run"] == wanted]
    last = {row["stage"]: row["started_at"] for row in ours}
    return RunTimes(str(wanted), [row for row in ours if row["started_at"] == last[row["stage"]]]) if ours else None


def _summarize_stage(stage: str, rows: Sequence[Row]) -> dict[str, Any]:
    steps: Mapping[str, float] = rows[0][STAGE_STEPS]
    inside = (rows[0]["ended_at"] - rows[0]["started_at"]).total_seconds() if rows[0]["ended_at"] else 0.0
    seconds = max(inside, sum(steps.values()))
    return {
        "stage": stage,
        "state": FAILED if any(row["state"] == FAILED for row in rows) else DONE,
        "seconds": round(seconds, 1),
        "cpu_seconds": rows[0].get(STAGE_CPU),
        **_split_seconds(steps, STEPS_OF_STAGE, seconds),
    }


def _summarize_flow_times(row: Row) -> dict[str, Any]:
    files, spark = row["table_files"], row["spark"]
    return {
        "table": row["flow"],
        **{name: row[name] for name in ("stage", "state", "seconds", "rows_in", "rows_out", "written_by", "recomputed")},
        **_split_seconds(row["steps"], FLOW_STEPS, float(row["seconds"])),
        "files": f"+{files['added']} -{files['removed']} = {files['files']}" if files else None,
        "read": _format_bytes(spark.get("input_bytes")),
        "written": _format_bytes(files.get("bytes_added") if files else None),
        "jobs": spark.get("jobs"),
        "table_files": files,
        "spark": spark,
        "stream": row["stream"],
    }


def _format_bytes(number: float | None) -> str | None:
    return format_size(round(number)) if number else None


def _split_seconds(steps: Mapping[str, float], names: Iterable[str], seconds: float) -> dict[str, float | None]:
    """Returns seconds by step to the tenth, None for less, and the rest under OTHER. Empty if no step was measured."""
    found = {name: round(steps[name], 1) or None for name in names if name in steps}
    return {**found, OTHER: round(max(seconds - sum(steps.values()), 0.0), 1) or None} if steps else {}
