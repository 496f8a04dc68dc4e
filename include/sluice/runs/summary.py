"""Describes what a run did, as a table for people and as one JSON object for the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sluice.erasure import request_events
from sluice.flow_counts import FLOW_FINDINGS
from sluice.lake.flow_report import FlowReport, has_begun_view_anew
from sluice.printable import count_noun, escape_to_one_line
from sluice.runs import run_ledger

NOTHING_NEW = "nothing new"
"""The note of a flow that found nothing to do."""


def format_text_table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """Formats rows as aligned text that starts at the first column, because Airflow's log view strips leading blanks."""
    cells = [list(header), *[["" if cell is None else escape_to_one_line(str(cell)) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def summarize_flow(report: FlowReport, failed: bool = False) -> dict[str, Any]:
    """Returns one flow as a plain object of ids, counts and reasons. failed: whether it did not finish."""
    found = {"flow": report.flow, "layer": report.layer, **{name: getattr(report, name) for name in FLOW_FINDINGS}}
    for name, counts in (("rules", report.rules), ("null_rules", report.null_rules)):
        found[name] = {rule: count for rule, count in counts.items() if count}
    found["quarantine_reasons"] = dict(report.quarantine_reasons)
    idle = not (failed or report.committed or report.has_news())
    found["note"] = "; ".join([*report.notes, *(["failed"] if failed else [])]) or (NOTHING_NEW if idle else "")
    return found


def summarize_run(
    run: str,
    pipeline: str,
    stage: str,
    mode: str,
    seconds: float,
    reports: Sequence[FlowReport],
    failed: Collection[str] = (),
) -> dict[str, Any]:
    """Returns a run of a stage as one object. committed: whether any table has a new version. failed: the flows that did not finish."""
    flows = [summarize_flow(report, report.flow in failed) for report in reports]
    committed = any(report.committed for report in reports)
    head = {"run": run, "pipeline": pipeline, "stage": stage, "mode": mode, "seconds": round(seconds, 1), "committed": committed}
    return {**head, "flows": flows}


def join_stage_reports(task: str, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the reports of the stages that a task has run into one, for a stage named like the task."""
    joined = {name: value for report in reports for name, value in report.items()}
    steps: Counter[str] = Counter()
    for report in reports:
        steps.update(report.get(run_ledger.STAGE_STEPS, {}))
    used = [report[run_ledger.STAGE_CPU] for report in reports if report.get(run_ledger.STAGE_CPU) is not None]
    return {
        **joined,
        **(
            {run_ledger.STAGE_STEPS: {name: round(seconds, 3) for name, seconds in steps.items()}}
            if run_ledger.STAGE_STEPS in joined
            else {}
        ),
        **({run_ledger.STAGE_CPU: round(sum(used), 2) if used else None} if run_ledger.STAGE_CPU in joined else {}),
        "stage": task,
        "seconds": round(sum(report["seconds"] for report in reports), 1),
        "committed": any(report["committed"] for report in reports),
        "flows": [flow for report in reports for flow in report["flows"]],
    }


def format_run_summary(report: dict[str, Any]) -> str:
    """Formats the summary table of a run."""
    header = ("table", "deliveries", "rows in", "rows out", "quarantined", "version", "seconds", "note")
    rows = []
    for flow in report["flows"]:
        version = flow["version_after"] if flow["version_after"] is not None else "-"
        moved = (
            f"{flow['version_before']} > {version}" if flow["version_before"] not in (None, flow["version_after"]) else version
        )
        counts = (flow["deliveries"] or "", flow["rows_in"], flow["rows_out"], flow["quarantined"])
        rows.append((flow["flow"], *counts, moved, flow["seconds"], _compose_flow_note(flow)))
    title = f"{report['pipeline']} {report['stage']}, {report['mode']}, run {report['run']}, {report['seconds']} s"
    empty = "" if rows else "\nnothing to do"
    if since := report.get("quiet_since"):
        empty += f"\nno Spark was started: nothing has changed since run {since} left nothing to do"
    return "\n".join([
        f"{title}\n{format_text_table(rows, header)}{empty}",
        *(describe_request_standing(one) for one in report.get("requests", ())),
        *report.get("catalog", ()),
    ])


def describe_request_standing(row: Mapping[str, Any]) -> str:
    """Returns the state of an erasure request as a line: `request 0a1b: logically erased, physical due on 2026-11-28`."""
    physical = row["physical_due_at"] if row["state"] == request_events.LOGICALLY else None
    return f"request {row['request']}: {row['state']}" + (f", physical due on {physical[:10]}" if physical else "")


def _compose_flow_note(flow: dict[str, Any]) -> str:
    warned = [f"{name}: {count_noun(count, 'row')}{_describe_null_count(flow, name)}" for name, count in flow["rules"].items()]
    of_table = [f"{name}: {found['text']}" for name, found in flow["table_rules"].items() if found["met"] is False]
    reasons = [
        f"quarantined: {reason} ({count})" for reason, count in flow["quarantine_reasons"].items() if reason not in flow["rules"]
    ]
    return "; ".join(part for part in (flow["note"], *_describe_gold_work(flow), *warned, *reasons, *of_table) if part)


def _describe_gold_work(flow: dict[str, Any]) -> list[str]:
    """Says how much of a view was recomputed; for a stateful flow, what came late or cannot be followed, and its state."""
    # If a flow began anew, a note already says that it was recomputed, and why.
    parts = ["" if has_begun_view_anew(flow["note"]) else flow["recomputed"] and f"recomputed {flow['recomputed']}"]
    parts.append(flow["late"] and f"late: {count_noun(flow['late'], 'row')}")
    parts.append(flow["unfollowed"] and f"not followed: {count_noun(flow['unfollowed'], 'change')}")
    parts.append(
        flow["state_rows"] and f"state: {count_noun(flow['state_rows'], 'row')}, {count_noun(flow['state_bytes'], 'byte')}"
    )
    return [part for part in parts if part]


def _describe_null_count(flow: dict[str, Any], rule: str) -> str:
    """Says for how many of the rows that do not meet a rule it was NULL."""
    count = flow["null_rules"].get(rule)
    return f" ({count} NULL)" if count else ""
