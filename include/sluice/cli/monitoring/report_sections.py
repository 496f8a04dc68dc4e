"""The lists of `sluice report`: sizes and costs, rows apart, rules, upkeep, failures, erasures. Each is a function in SECTIONS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sluice.cli.monitoring.report_charts import COUNTS_APART, draw_cell_bars, group_counted_rows, trend_by_run
from sluice.cli.printing import format_instant
from sluice.declare.assembly.graph import Graph
from sluice.erasure import request_record
from sluice.erasure.proof import chain
from sluice.errors import SluiceError
from sluice.pipeline_records import QUARANTINE, PipelineRecords
from sluice.pipeline_stages import OPTIMIZE, VACUUM
from sluice.printable import count_noun, format_size
from sluice.record_states import FAILED
from sluice.runs import run_ledger
from sluice.runs.run_ledger import Row
from sluice.runs.status.run_times import RunTimes

_UPKEEP_ROWS, _FAILURE_ROWS, _ERASURE_ROWS = 15, 10, 30

Kind = Literal["text", "number", "chart"]


@dataclass(frozen=True)
class ReportFacts:
    """The data that the lists are made from. graph: the declarations. state: as `sluice status` computes it. rows: the run ledger.

    runs: those that the page shows.
    """

    records: PipelineRecords
    graph: Graph
    state: Mapping[str, Any]
    rows: Sequence[Row]
    runs: Sequence[RunTimes]

    @property
    def shown_rows(self) -> list[Row]:
        """The rows of the run ledger for the shown runs."""
        names = {run.run for run in self.runs}
        return [row for row in self.rows if row["run"] in names]


@dataclass(frozen=True)
class Section:
    """A titled list. columns: name in the rows, title, and how its cells are shown. A list without rows is left out."""

    title: str
    about: str
    columns: Sequence[tuple[str, str, Kind]]
    rows: Sequence[Mapping[str, Any]]


def describe_last_failure(rows: Sequence[Row], tables: Collection[str]) -> dict[str, Any] | None:
    """The last stage that failed: which run, which tables by which kind of error, and whether all of them went well since. None if none ever did.

    tables: those that are declared. Other flows, such as that of the landing folders, have rows only where there was something to do: they are
    over when any flow of the stage went well. A retry, and each round of a process that is kept running, has the id of the run before: they
    differ by when they began.
    """
    positions = [position for position, row in enumerate(rows) if row["state"] == FAILED]
    if not positions:
        return None
    last = rows[positions[-1]]
    ours = [row for row in rows if row["state"] == FAILED and _is_same_attempt(row, last)]
    later = [row for row in rows[positions[-1] :] if row["stage"] == last["stage"] and not _is_same_attempt(row, last)]
    well = {row["flow"] for row in later}
    kinds = {row["flow"]: row["failure"] or "which kind is not recorded" for row in ours}
    return {
        "run": last["run"],
        "stage": last["stage"],
        "at": format_instant(last["ended_at"]),
        "tables": [f"{flow} ({kind})" for flow, kind in kinds.items()],
        "over": bool(well) and {flow for flow in kinds if flow in tables or flow == run_ledger.WHOLE_STAGE} <= well,
    }


def _is_same_attempt(row: Row, other: Row) -> bool:
    return all(row[name] == other[name] for name in ("run", "stage", "started_at"))


def _list_tables(facts: ReportFacts) -> Section:
    last = {row["flow"]: row for row in facts.rows if row["steps"]}
    found = []
    for table in facts.state["tables"]:
        flow = None if table["layer"] == QUARANTINE else table["table"]  # the time of a quarantine is that of its table
        row = last.get(flow, {})
        ours = [one for one in facts.shown_rows if one["flow"] == flow]
        spent = [one["spark"]["cpu_seconds"] for one in ours if "cpu_seconds" in one["spark"]]
        found.append({
            **table,
            "name": run_ledger.sql_name(table),
            "size": format_size(table["bytes"]),
            "cpu_last": row.get("spark", {}).get("cpu_seconds"),
            "cpu_all": round(sum(spent), 1) if spent else None,
            "trend": draw_cell_bars([one["table_files"]["bytes"] for one in ours if "bytes" in one["table_files"]]),
            **{name: row.get(name) for name in ("seconds", "written_by", "recomputed")},
        })
    columns: list[tuple[str, str, Kind]] = [("layer", "layer", "text"), ("name", "table", "text"), ("rows", "rows", "number")]
    columns += [("files", "files", "number"), ("size", "size", "number"), ("trend", "by version", "chart")]
    columns += [("version", "version", "number"), ("seconds", "seconds, last time", "number")]
    columns += [("cpu_last", "CPU, last time", "number"), ("cpu_all", "CPU in all", "number")]
    columns += [("written_by", "written by", "text"), ("recomputed", "recomputed", "text")]
    about = (
        "The last time is the last run that did anything to the table. CPU: seconds of Spark's tasks for it, in all: "
        f"in the last {count_noun(len(facts.runs), 'run')}."
    )
    return Section("Sizes and costs", about, columns, found)


def _list_rows_apart(facts: ReportFacts) -> Section:
    rows, found = facts.shown_rows, []
    for flow in dict.fromkeys(row["flow"] for row in rows):
        ours = [row for row in rows if row["flow"] == flow]
        counted = [row for run in group_counted_rows(ours).values() for row in run]
        sums = {name: sum(row[name] or 0 for row in counted) for name in COUNTS_APART}
        if any(sums.values()):
            trend = trend_by_run(ours, lambda row: sum(row[name] or 0 for name in COUNTS_APART))
            shown = {name: count or None for name, count in sums.items()}
            found.append({"flow": flow, **shown, "trend": draw_cell_bars(list(trend))})
    counts: list[tuple[str, str, Kind]] = [(name, name, "number") for name in COUNTS_APART]
    columns: list[tuple[str, str, Kind]] = [("flow", "table", "text"), *counts, ("trend", "by run", "chart")]
    return Section("Rows that went another way", f"Sums of the last {count_noun(len(facts.runs), 'run')}.", columns, found)


def _list_unmet_rules(facts: ReportFacts) -> Section:
    """Expectations that rows did not meet in any run, and those on whole tables that are not met now."""
    found = []
    for flow in dict.fromkeys(row["flow"] for row in facts.rows):
        ours = [row for row in facts.rows if row["flow"] == flow]
        for rule in dict.fromkeys(rule for row in ours for rule in row["rules"]):
            counts = list(trend_by_run(ours, _rule_counter(rule)))
            numbers = {"rows": counts[-1] if counts else None, "total": sum(counts), "trend": draw_cell_bars(counts)}
            found.append({"flow": flow, "rule": rule, "text": "", **numbers})
        found += [
            {"flow": flow, "rule": rule, "rows": told["count"], "total": None, "trend": None, "text": "on the whole table"}
            for rule, told in _read_last_verdicts(ours).items()
            if told["met"] is False and rule in _list_table_rules(facts.graph, flow)
        ]
    columns: list[tuple[str, str, Kind]] = [("flow", "table", "text"), ("rule", "expectation", "text")]
    columns += [("rows", "rows, last time", "number"), ("total", "in all runs", "number"), ("trend", "by run", "chart")]
    about = "Rows that did not meet an expectation, whatever became of them."
    return Section("Expectations that were not met", about, [*columns, ("text", "", "text")], found)


def _rule_counter(rule: str) -> Callable[[Row], float | None]:
    return lambda row: row["rules"].get(rule)


def _read_last_verdicts(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """What was last found of each expectation on a whole table."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found |= row["table_rules"]
    return found


def _list_table_rules(graph: Graph, flow: str) -> list[str]:
    """Names of the expectations on a whole table that are declared now: what was found of an earlier one is never found again."""
    return [rule.name for rule in graph.datasets[flow].table_expectations] if flow in graph.datasets else []


def _list_upkeep(facts: ReportFacts) -> Section:
    stages = {OPTIMIZE.name, VACUUM.name}
    found = [
        {"at": format_instant(row["ended_at"]), **{name: row[name] for name in ("stage", "flow", "note", "written_by")}}
        for row in reversed(facts.rows)
        if row["stage"] in stages and row["version_before"] != row["version_after"]
    ]
    columns: list[tuple[str, str, Kind]] = [("at", "at (UTC)", "text"), ("stage", "stage", "text"), ("flow", "table", "text")]
    columns += [("note", "what", "text"), ("written_by", "by", "text")]
    return Section("Upkeep", "The last rewrites and removals of files.", columns, found[:_UPKEEP_ROWS])


def _list_upkeep_bought(facts: ReportFacts) -> Section:
    """What a question for one value must open, before the first of the shown rewrites of a table and after the last."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in facts.shown_rows:
        for column, told in row["questions"].items():
            one = found.setdefault(
                (row["flow"], column),
                {
                    "flow": row["flow"],
                    "column": column,
                    "rewrites": 0,
                    "before": told["files_before"],
                    "was": told["bytes_before"],
                },
            )
            one |= {"rewrites": one["rewrites"] + 1, "after": told["files_after"], "now": format_size(int(told["bytes_after"]))}
    rows = [{**one, "was": format_size(int(one["was"]))} for one in found.values()]
    columns: list[tuple[str, str, Kind]] = [("flow", "table", "text"), ("column", "asked by", "text")]
    columns += [("rewrites", "rewrites", "number"), ("before", "files before", "number"), ("after", "files after", "number")]
    columns += [("was", "bytes before", "number"), ("now", "bytes after", "number")]
    about = f"Files and bytes that a question for one value opens, before and after the rewrites of the last {count_noun(len(facts.runs), 'run')}."
    return Section("What upkeep bought", about, columns, rows)


def _list_failures(facts: ReportFacts) -> Section:
    names = ("run", "stage", "flow", "failure")
    found = [
        {"at": format_instant(row["ended_at"]), **{name: row[name] for name in names}}
        for row in reversed(facts.rows)
        if row["state"] == FAILED
    ]
    columns: list[tuple[str, str, Kind]] = [("at", "at (UTC)", "text"), ("run", "run", "text"), ("stage", "stage", "text")]
    columns += [("flow", "table", "text"), ("failure", "which kind", "text")]
    return Section("Failures", "The latest failures; the log of a run has the details.", columns, found[:_FAILURE_ROWS])


def _list_erasures(facts: ReportFacts) -> Section:
    found = [
        {
            "request": one.request,
            "state": one.shown_state,
            "due": format_instant(one.deadline),
            "physical": format_instant(one.bytes_due_at),
        }
        for one in request_record.list_erasure_requests(facts.records)[::-1]
    ]
    columns: list[tuple[str, str, Kind]] = [("request", "request", "text"), ("state", "state", "text")]
    columns += [("due", "to be proved by", "text"), ("physical", "bytes may go from", "text")]
    return Section("Erasures", "Requests by their ids, without names of people.", columns, found[:_ERASURE_ROWS])


def _list_certificates(facts: ReportFacts) -> Section:
    try:
        issued = chain.read_certificates(facts.records)[::-1]
    except SluiceError:
        return Section(
            "Certificates",
            "A certificate cannot be read; sluice erase verify says which.",
            [("number", "", "text")],
            [{"number": ""}],
        )
    found = [
        {
            "number": f"{one.record['number']}",
            "request": one.record["request"],
            "at": str(one.record.get("issued_at", ""))[:19].replace("T", " "),
            "logical": one.logical,
            "physical": one.physical,
            "verdict": one.verdict,
        }
        for one in issued[:_ERASURE_ROWS]
    ]
    columns: list[tuple[str, str, Kind]] = [("number", "number", "text"), ("request", "request", "text")]
    columns += [("at", "issued at (UTC)", "text"), ("logical", "no query returns the person", "text")]
    columns += [("physical", "no byte is left", "text"), ("verdict", "verdict", "text")]
    return Section("Certificates", "The verdicts when they were issued; sluice erase verify checks one again.", columns, found)


SECTIONS: Sequence[Callable[[ReportFacts], Section]] = (
    _list_tables,
    _list_rows_apart,
    _list_unmet_rules,
    _list_upkeep_bought,
    _list_upkeep,
    _list_failures,
    _list_erasures,
    _list_certificates,
)
"""The lists of the page, in its order."""
