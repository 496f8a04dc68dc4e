"""The body of every job script: from its arguments to its summary, its JSON and its exit code."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from sluice.declare.interval import Interval
from sluice.durable_files import write_text_durably
from sluice.errors import SluiceError, UsageError
from sluice.printable import escape_keeping_lines, library_texts_withheld
from sluice.runs import summary
from sluice.runs.job import JobRequest, describe_error_without_values, run_recorded_stage
from sluice.settings import Settings


def run_stage_script(script: str) -> NoReturn:
    """Run the stage that a job script is called like, as the arguments say; print its summary and its JSON, and exit.

    Exit codes: 0 done, 1 failed, 2 wrong use, 3 lease held.
    """
    stage = Path(script).stem
    run_job_script(
        stage,
        build_stage_parser(stage),
        lambda arguments: run_recorded_stage(Settings.current(), read_job_request(stage, arguments)),
    )


def run_job_script(name: str, parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], dict[str, Any]]) -> NoReturn:
    """Do what the arguments of a job script say; print, write and exit as `run_stage_script` does. work: gives a run's report."""
    try:
        arguments = parser.parse_args()
        with library_texts_withheld():
            report = work(arguments)
    except KeyboardInterrupt:
        print(f"sluice {name}: interrupted", file=sys.stderr, flush=True)
        sys.exit(130)
    except Exception as error:
        sys.stdout.flush()
        print(escape_keeping_lines(f"sluice {name}: {describe_error_without_values(error)}"), file=sys.stderr, flush=True)
        sys.exit(error.exit_code if isinstance(error, SluiceError) else 1)
    if arguments.report:
        _write_report_file(Path(arguments.report), json.dumps(report))
    print(summary.format_run_summary(report))
    print(json.dumps(report), flush=True)
    sys.exit(0)


def build_job_parser(name: str, about: str) -> argparse.ArgumentParser:
    """The arguments that every job script takes: of which pipeline, who asks, how long to wait, where the report goes."""
    made = argparse.ArgumentParser(prog=f"{name}.py", description=about)
    made.add_argument("--pipeline", required=True)
    made.add_argument("--run-id", default="", type=_check_run_identifier)
    made.add_argument("--airflow-run", default="", type=_check_run_identifier)
    made.add_argument("--wait", default=0.0, type=float)
    made.add_argument("--report", default="")
    return made


def build_stage_parser(stage: str) -> argparse.ArgumentParser:
    """The arguments of a stage's job script."""
    made = build_job_parser(stage, f"The {stage} stage of a pipeline.")
    made.add_argument("--mode", default="increment")
    made.add_argument("--from", dest="start", default="")
    made.add_argument("--to", dest="end", default="")
    made.add_argument("--tables", default="")
    made.add_argument("--verify", choices=("next", "all"), default="next")
    return made


def read_job_request(stage: str, arguments: argparse.Namespace) -> JobRequest:
    """What the arguments of a stage's job script ask for. Raises UsageError."""
    start, end = arguments.start, arguments.end
    if bool(start) != bool(end):
        raise UsageError("--from and --to belong together: an interval has a start and an end.")
    return JobRequest(
        pipeline=arguments.pipeline,
        stage=stage,
        mode=arguments.mode,
        tables=tuple(name.strip() for name in arguments.tables.split(",") if name.strip()),
        run=arguments.run_id,
        airflow_run=arguments.airflow_run,
        wait=arguments.wait,
        interval=Interval.of(start, end) if start else None,
        verified=() if arguments.verify == "all" else None,
    )


def _check_run_identifier(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", text):
        raise UsageError("A run id has letters, digits, dots, dashes and underscores only.")
    return text


def _write_report_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_durably(path, text)
