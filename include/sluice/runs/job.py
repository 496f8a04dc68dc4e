"""The body of every job script and of `sluice run`: one stage of one pipeline, from its arguments to its exit code."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sluice.declare.fingerprint import fingerprint
from sluice.declare.graph import Graph
from sluice.declare.interval import Interval
from sluice.declare.loading import load
from sluice.declare.tables import Dataset
from sluice.errors import SluiceError, UsageError
from sluice.runs import ledger, summary
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.lake.report import FlowReport
    from sluice.lake.workspace import Workspace

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")


@dataclass(frozen=True)
class Request:
    """What is asked of a job. wait: seconds to wait for the lease. airflow_run: an id of Airflow's run, never a user's text.

    interval: what a replay takes; of a scheduled run only recorded, since an increment takes whatever is new.
    """

    pipeline: str
    stage: str
    mode: str = "increment"
    tables: tuple[str, ...] = ()
    run: str = ""
    airflow_run: str = ""
    wait: float = 0.0
    interval: Interval | None = None


def main(stage: str) -> NoReturn:
    """Run a stage as the arguments say, print its summary and its JSON, and exit: 0 done, 1 failed, 2 wrong use, 3 lease held."""
    try:
        arguments = _arguments(stage)
        report = perform(Settings.current(), _asked(stage, arguments))
    except Exception as error:
        sys.stdout.flush()
        print(f"sluice {stage}: {reason(error)}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code if isinstance(error, SluiceError) else 1)
    if arguments.report:
        _write(Path(arguments.report), json.dumps(report))
    print(summary.shown(report))
    print(json.dumps(report), flush=True)
    sys.exit(0)


def perform(settings: Settings, request: Request) -> dict[str, Any]:
    """Run a stage under the lease and record it. Returns its report. Raises SluiceError, or what Spark raised."""
    from sluice.runs import modes, stages

    graph = load(settings, request.pipeline)
    modes.check(graph, request.stage, request.mode, request.tables, request.interval)
    return under_lease(settings, graph, request, lambda workspace: stages.run(workspace, request.stage, request.tables))


def under_lease(
    settings: Settings, graph: Graph, request: Request, work: Callable[[Workspace], list[FlowReport]]
) -> dict[str, Any]:
    """Do something under a pipeline's lease and record it as a run of the request's stage. Returns and raises as `perform` does."""
    from sluice import session as sessions
    from sluice.lake.workspace import Workspace
    from sluice.runs import lakeformat, lease, stages

    started, at = time.monotonic(), datetime.now(UTC)
    lakeformat.check(settings, request.pipeline)
    run = request.run or uuid.uuid4().hex[:12]
    session = sessions.start(settings, f"sluice {request.pipeline} {request.stage}")
    with lease.held(settings, session, request.pipeline, run, request.wait):
        lakeformat.mark(settings, request.pipeline)
        interval = request.interval if request.mode == "replay" else None
        workspace = Workspace(settings, graph, session, run, request.mode, interval)
        try:
            reports = work(workspace)
        except stages.Failed as failed:
            report = summary.of_run(
                run, request.pipeline, request.stage, request.mode, time.monotonic() - started, failed.reports
            )
            _record(settings, graph, request, report, at, set(failed.errors))
            raise _first(failed.errors) from None
        report = summary.of_run(run, request.pipeline, request.stage, request.mode, time.monotonic() - started, reports)
        _record(settings, graph, request, report, at, set())
    return report


def reason(error: BaseException) -> str:
    """Why it failed, without a cell's value: of Spark's own errors their condition alone, since their text may quote data."""
    if os.environ.get("SLUICE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, SluiceError):
        return str(error)
    from pyspark.errors import AnalysisException, PySparkException

    conditions = _CONDITION.findall(str(error))
    if isinstance(error, AnalysisException):
        return str(error).splitlines()[0]
    if isinstance(error, PySparkException) or conditions:
        return f"Spark failed with {conditions[-1] if conditions else type(error).__name__}. SLUICE_DEBUG=1 shows where (and may show data)."
    return f"{type(error).__name__} in Sluice itself. SLUICE_DEBUG=1 shows where (and may show data)."


def _first(errors: dict[str, BaseException]) -> BaseException:
    flow, error = next(iter(errors.items()))
    if len(errors) > 1:
        print(f"failed: {', '.join(sorted(errors))}; the first:", file=sys.stderr)
    if isinstance(error, SluiceError):
        return error
    return SluiceError(f"Flow '{flow}': {reason(error)}")


def _record(settings: Settings, graph: Graph, request: Request, report: dict[str, Any], at: datetime, failed: set[str]) -> None:
    common = {"run": report["run"], "pipeline": request.pipeline, "stage": request.stage, "mode": request.mode}
    common |= {"airflow_run": request.airflow_run, "started_at": at, "ended_at": datetime.now(UTC)}
    if request.interval:
        common |= {"interval_start": request.interval.start, "interval_end": request.interval.end}
    code = {(item.name, graph.layer(item)): fingerprint(item) for item in graph if isinstance(item, Dataset)}
    rows = [
        {
            **common,
            **flow,
            "state": "failed" if flow["flow"] in failed else "done",
            **{name: json.dumps(flow[name]) for name in ledger.OBJECTS},
            "fingerprint": code.get((flow["flow"], flow["layer"])),
        }
        for flow in report["flows"]
    ]
    if rows:
        ledger.record(settings, request.pipeline, rows)


def _arguments(stage: str, given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"{stage}.py", description=f"The {stage} stage of a pipeline.")
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--mode", default="increment")
    parser.add_argument("--from", dest="start", default="")
    parser.add_argument("--to", dest="end", default="")
    parser.add_argument("--tables", default="")
    parser.add_argument("--run-id", default="", type=_identifier)
    parser.add_argument("--airflow-run", default="", type=_identifier)
    parser.add_argument("--wait", default=0.0, type=float)
    parser.add_argument("--report", default="")
    return parser.parse_args(given)


def _asked(stage: str, arguments: argparse.Namespace) -> Request:
    start, end = arguments.start, arguments.end
    if bool(start) != bool(end):
        raise UsageError("--from and --to belong together: an interval has a start and an end.")
    return Request(
        pipeline=arguments.pipeline,
        stage=stage,
        mode=arguments.mode,
        tables=tuple(name.strip() for name in arguments.tables.split(",") if name.strip()),
        run=arguments.run_id,
        airflow_run=arguments.airflow_run,
        wait=arguments.wait,
        interval=Interval.of(start, end) if start else None,
    )


def _identifier(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", text):
        raise UsageError("A run id has letters, digits, dots, dashes and underscores only.")
    return text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
