"""`sluice history`, `ledger` and `runs`: what was committed, delivered and run, read without a JVM."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from sluice.cli.name_lookup import find_replacing_sources, resolve_table_name
from sluice.cli.printing import AsJson, Limit, PipelineName, escaping_console, format_instant, print_json, print_rows
from sluice.errors import UsageError, find_nearest_name, nearest_name_hint
from sluice.flow_counts import NEWS_COUNTS
from sluice.lake import commit_history
from sluice.lake.commit_marks import DeliveryOrigin, find_version_origins
from sluice.pipeline_records import PipelineRecords
from sluice.printable import count_noun
from sluice.record_states import DONE, SHOWN_STATES
from sluice.runs import run_ledger
from sluice.runs.summary import NOTHING_NEW
from sluice.settings import Settings, list_pipeline_names, require_known_pipeline

_ROWS_IN = ("numSourceRows",)
_ROWS_OUT = ("numOutputRows",)
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def history(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="<pipeline>.<table>, or a pipeline: all its tables.")],
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List a table's versions, newest first: what made each, how many rows it changed, and from which deliveries."""
    settings = Settings.current()
    rows = []
    for records, shown, path in _find_history_tables(settings, name):
        found = find_version_origins(path, partial(_find_input_path, records))
        rows += [
            _commit_as_row(shown, commit, found.get(commit["version"], DeliveryOrigin()))
            for commit in commit_history.read_commit_history(path, limit)
        ]
    rows = sorted(rows, key=lambda row: str(row["at"]), reverse=True)[:limit]
    if as_json:
        print_json({"table": name, "versions": rows})
    elif rows:
        several = ("table",) if "." not in name else ()
        columns = ("version", "at", "operation", "rows_in", "rows_out", "run", "mode", "flow", "inputs", "deliveries")
        print_rows(rows, (*several, *columns))
    else:
        escaping_console().print(f"The lake {settings.lake} has no table of '{name}' yet.", soft_wrap=True)


def ledger(
    pipeline: PipelineName,
    source: Annotated[str | None, typer.Option(help="Deliveries of this source only.")] = None,
    state: Annotated[str | None, typer.Option(help=f"Only those in this state: {', '.join(SHOWN_STATES)}.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first: which file came when, and its state."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    if state is not None and state not in SHOWN_STATES:
        raise UsageError(f"There is no state '{state}'.{nearest_name_hint(state, SHOWN_STATES)}")
    found = run_ledger.read_delivery_ledger(records, replacing=find_replacing_sources(records))
    sources = {row["source"] for row in found}
    if source is not None and found and source not in sources:
        raise UsageError(f"No delivery is of a source '{source}'.{nearest_name_hint(source, sources)}")
    rows = [row for row in reversed(found) if source in (None, row["source"]) and state in (None, row["state"])]
    columns = (
        "delivery",
        "source",
        "file",
        "event",
        "size",
        "modified_at",
        "state",
        "read",
        "rows",
        "rescued",
        "quarantined",
        "suppressed",
        "discarded",
        "batch",
        "ingest_run",
        "reason",
        "held_back",
    )
    if not as_json:  # by name; `sluice status` says what keeps them
        rows = [{**row, "held_back": list(row["held_back"] or ()) or None} for row in rows]
    _print_newest_rows(rows, columns, limit, as_json, f"No delivery of '{pipeline}' is in the ledger.", "deliveries")


def runs(
    pipeline: PipelineName,
    rules: Annotated[bool, typer.Option("--rules", help="Show how many rows failed each expectation.")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what each run did, newest first. Tables of a stage that had nothing new share a row; --json has them all."""
    rows = run_ledger.read_run_ledger(PipelineRecords.of_known(Settings.current(), pipeline))[::-1]
    if rules:
        of_rules = ("started_at", "run", "flow", "state", "rule", "rows", "null", "met", "text", "rules_version")
        none = f"No expectation of '{pipeline}' has found anything yet."
        _print_newest_rows([rule for row in rows for rule in _rules_as_rows(row)], of_rules, limit, as_json, none, "rules")
        return
    columns = ("started_at", "run", "stage", "mode", "flow", "state", "deliveries", "rows_in", "rows_out", "quarantined")
    shown = rows if as_json else _group_idle_tables(rows)
    _print_newest_rows(shown, (*columns, "seconds", "note"), limit, as_json, f"'{pipeline}' has not been run yet.", "runs")


def _group_idle_tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with one row for all tables of a run's stage that had nothing new: they would hide the others."""
    idle: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if _is_idle_run(row):
            idle.setdefault((row["run"], row["stage"]), []).append(row["flow"])
    found = []
    for row in rows:
        flows = idle.pop((row["run"], row["stage"]), []) if _is_idle_run(row) else [row["flow"]]
        if len(flows) == 1:
            found.append(row)
        elif flows:
            # Its tables are done side by side: their seconds do not add up to anything.
            found.append({**row, "flow": count_noun(len(flows), "table"), "seconds": None})
    return found


def _is_idle_run(row: dict[str, Any]) -> bool:
    return row["state"] == DONE and row["note"] == NOTHING_NEW and not any(row[name] for name in NEWS_COUNTS)


def _rules_as_rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings of a table's rules in a run, one row each. Rules on single rows are left out if every row met them."""
    common = {name: run[name] for name in ("started_at", "run", "flow", "state")}
    of_rows = [
        {**common, "rule": name, "rows": count, "null": run["null_rules"].get(name, 0), "rules_version": run["rules_version"]}
        for name, count in run["rules"].items()
    ]
    of_table = [
        {**common, "rule": name, "rows": found["count"], "met": found["met"], "text": found["text"]}
        for name, found in run["table_rules"].items()
    ]
    return of_rows + of_table


def _print_newest_rows(
    rows: list[dict[str, Any]], columns: tuple[str, ...], limit: int, as_json: bool, none: str, what: str
) -> None:
    shown = [
        {name: format_instant(value) if name.endswith("_at") else value for name, value in row.items()} for row in rows[:limit]
    ]
    if as_json:
        print_json({what: shown, "total": len(rows)})
        return
    if not rows:
        escaping_console().print(none)
        return
    print_rows(shown, columns)
    if len(rows) > limit:
        escaping_console().print(f"... and {len(rows) - limit:,} older ones; --limit shows more")


def _find_history_tables(settings: Settings, name: str) -> list[tuple[PipelineRecords, str, str]]:
    """For each table: the records of its pipeline, its name in the output, and its path."""
    if name in list_pipeline_names(settings):
        every = PipelineRecords(settings, name)
        return [(every, f"{row['layer']}.{row['table']}", row["path"]) for row in run_ledger.list_pipeline_tables(every)]
    if "." not in name and find_nearest_name(name, list_pipeline_names(settings)):
        require_known_pipeline(settings, name)
    records, wanted, path = resolve_table_name(settings, name)
    return [(records, f"{records.pipeline}.{wanted}", path)]


def _find_input_path(records: PipelineRecords, name: str) -> str | None:
    """The path of a table that a view reads; None if the table no longer exists."""
    known = {run_ledger.sql_name(row) for row in run_ledger.list_pipeline_tables(records)}
    return run_ledger.find_table_path(records, name) if name in known else None


def _commit_as_row(shown: str, commit: dict[str, Any], origin: DeliveryOrigin) -> dict[str, Any]:
    """A version as a row. Its parameters stay out: a condition may hold a key's values."""
    metrics, note = commit["metrics"], commit["note"]
    inputs = note.get("inputs", {})
    merged = sum(int(metrics.get(name, 0)) for name in _MERGED) if commit["operation"] == "MERGE" else None
    return {
        "table": shown,
        "version": commit["version"],
        "at": format_instant(commit["at"]),
        "operation": commit["operation"],
        "rows_in": _read_first_metric(metrics, _ROWS_IN),
        "rows_out": _read_first_metric(metrics, _ROWS_OUT) if merged is None else merged,
        "run": note.get("run"),
        "mode": note.get("mode"),
        "flow": note.get("flow"),
        "inputs": ", ".join(f"{name} {version}" for name, version in inputs.items()) or None,
        "deliveries": str(origin) or None,
    }


def _read_first_metric(metrics: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((int(metrics[name]) for name in names if name in metrics), None)
