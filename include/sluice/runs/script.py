"""The common work of job scripts: from the arguments to the summary, the JSON and the exit code."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args

from sluice.declare.assembly.loading import load_pipeline_declaration
from sluice.declare.interval import Interval
from sluice.durable_files import write_text_durably
from sluice.errors import SluiceError, UsageError
from sluice.pipeline_stages import VerifyChoice, list_stages_of_task
from sluice.printable import escape_keeping_lines, library_texts_withheld
from sluice.run_modes import INCREMENT
from sluice.runs import summary
from sluice.runs.execution.stages import StageOptions
from sluice.runs.failures import describe_error_without_values
from sluice.runs.followed_job import RETRY_HELPS, JobEnd, tell_follower
from sluice.runs.job import JobRequest, make_run_id, run_stages_in_turn
from sluice.settings import Settings


def run_stage_script(script: str) -> NoReturn:
    """Runs the stages of the task that the job script is named after, by its arguments; prints summaries and JSON, and exits.

    Exit codes: 0 done, 1 failed, 2 wrong use, 3 lease held.
    """
    task = Path(script).stem
    run_job_script(task, build_stage_parser(task), lambda arguments: _run_stages_of_task(task, arguments))


def _run_stages_of_task(task: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    settings, request = Settings.current(), read_stage_request(arguments)
    pipeline = load_pipeline_declaration(settings, request.pipeline)
    return run_stages_in_turn(settings, request, list_stages_of_task(pipeline, task))


def run_job_script(
    name: str, parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], Iterable[dict[str, Any]]]
) -> NoReturn:
    """Runs a job script by its arguments; prints, writes and exits as `run_stage_script` does.

    work: yields the report of each stage when it is done.
    """
    try:
        arguments = parser.parse_args()
    except UsageError as error:
        print(f"sluice {name}: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    with tell_follower(arguments.followed_at) as tell_end:
        end = _do_job(name, lambda: work(arguments))
        if end.reason:
            sys.stdout.flush()
            print(escape_keeping_lines(f"sluice {name}: {end.reason}"), file=sys.stderr, flush=True)
            if end.report is not None:
                with suppress(OSError):  # it failed already, and its caller is told of that first of all
                    write_task_report(arguments.report, end.report)
        elif end.report is not None:
            print(write_task_report(arguments.report, end.report), flush=True)
        tell_end(end)
    sys.exit(end.exit_code)


def _do_job(name: str, work: Callable[[], Iterable[dict[str, Any]]]) -> JobEnd:
    """Does the work of a job, and prints the summary of each stage. Returns how it ended, in every case.

    The report of a job that failed has what its flows did nevertheless: rows that were set aside by one are not set aside again.
    """
    reports: list[dict[str, Any]] = []
    try:
        with library_texts_withheld():
            for report in work():
                print(summary.format_run_summary(report), flush=True)
                reports.append(report)
    except KeyboardInterrupt:
        code, reason = 130, "interrupted"
    except Exception as error:
        code, reason = error.exit_code if isinstance(error, SluiceError) else 1, describe_error_without_values(error)
        if isinstance(error, SluiceError) and error.report is not None:
            reports.append(error.report if error.retry_helps else {**error.report, RETRY_HELPS: False})
    else:
        code, reason = 0, ""
    return JobEnd(code, reason, summary.join_stage_reports(name, reports) if reports or not code else None)


def write_task_report(path: str, report: dict[str, Any]) -> str:
    """Writes the report of a task as JSON to the file that the job's caller named, if any. Returns the text."""
    text = json.dumps(report)
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_text_durably(Path(path), text)
    return text


def build_job_parser(name: str, about: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments that every job script takes: the pipeline, who asks, how long to wait, where the report goes."""
    made = argparse.ArgumentParser(prog=f"{name}.py", description=about)
    made.add_argument("--pipeline", required=True)
    made.add_argument("--run-id", default=make_run_id(), type=_check_run_identifier)
    made.add_argument("--airflow-run", default="", type=_check_airflow_run)
    made.add_argument("--wait", default=0.0, type=float)
    made.add_argument("--report", default="")
    made.add_argument("--followed-at", default="")
    return made


def build_stage_parser(stage: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of a stage's job script."""
    made = build_job_parser(stage, f"The {stage} stage of a pipeline.")
    made.add_argument("--mode", default=INCREMENT.name)
    made.add_argument("--from", dest="start", default="")
    made.add_argument("--to", dest="end", default="")
    made.add_argument("--tables", default="", type=split_names)
    made.add_argument("--verify", choices=get_args(VerifyChoice), default="next")
    made.add_argument("--optimize-now", default="", type=split_names)
    return made


def read_job_request(arguments: argparse.Namespace, stage: str) -> JobRequest:
    """Returns the request that the arguments of every job script describe."""
    return JobRequest(arguments.pipeline, stage, run=arguments.run_id, airflow_run=arguments.airflow_run, wait=arguments.wait)


def read_stage_request(arguments: argparse.Namespace) -> JobRequest:
    """Returns the request that the arguments of a stage's job script describe, for each stage of its task. Raises UsageError."""
    start, end = arguments.start, arguments.end
    if bool(start) != bool(end):
        raise UsageError("--from and --to belong together: an interval has a start and an end.")
    return replace(
        read_job_request(arguments, ""),
        mode=arguments.mode,
        interval=Interval.of(start, end) if start else None,
        options=StageOptions(tables=arguments.tables, verify=arguments.verify, optimize_now=arguments.optimize_now),
    )


def split_names(text: str) -> tuple[str, ...]:
    """Returns the names in an argument, which are separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _check_run_identifier(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", text):
        raise UsageError("A run id has 1 to 80 letters, digits, dots, dashes and underscores, and nothing else.")
    return text


def _check_airflow_run(text: str) -> str:
    return _check_run_identifier(text) if text else ""  # a job that Airflow did not start
