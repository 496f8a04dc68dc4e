"""Translates the backfill arguments of `./airflow` for Airflow: the end is included, days that ran already run again, upkeep runs once.

`dags backfill` with the arguments of Airflow 2 works on both lines. All other commands pass unchanged. Imports no Airflow.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from orchestration.airflow_line import airflow_line
from orchestration.backfill.checks import refuse_backfill_that_cannot_start
from sluice.declare.assembly.loading import load_pipeline_declaration
from sluice.declare.interval import Interval, parse_date, parse_instant
from sluice.declare.schedule_intervals import data_intervals_starting_within
from sluice.errors import UsageError
from sluice.settings import Settings, list_pipeline_names

_ONE_DAG = "Backfill one DAG after the other."
_REFUSED = {
    "task_regex": 'Name tables instead: --conf \'{"tables": ["..."]}\'.',
    "ignore_dependencies": 'Name tables instead: --conf \'{"tables": ["..."]}\'.',
    "mark_success": "Mark the runs in Airflow's UI instead.",
    "local": "Leave it out: the scheduler's executor runs the tasks. Without a scheduler: sluice backfill ... --local.",
    "disable_retry": "Leave it out: the tasks' own retries apply.",
    "subdir": "Leave it out: DAGs are found in dags/.",
    "pool": "Leave it out: the pipeline's own pool keeps its runs apart.",
    "delay_on_limit": "Leave it out: the scheduler waits by itself.",
    "treat_dag_id_as_regex": _ONE_DAG,
    "treat_dag_as_regex": _ONE_DAG,
}
"""Options of Airflow 2's `dags backfill` that mean nothing on Airflow 3, with what to do instead."""


@dataclass
class RequestedBackfill:
    """A backfill as the command line requests it. rest: arguments that are passed on unchanged."""

    dag: str
    start: str
    end: str
    conf: dict[str, Any]
    backwards: bool
    dry_run: bool
    rest: list[str] = field(default_factory=list)

    @property
    def days(self) -> Interval:
        """From the start to the end; a date as the end is included. Raises UsageError."""
        first, last = parse_instant(self.start, "The start"), parse_instant(_make_end_inclusive(self.end), "The end")
        if first > last:
            raise UsageError(f"The backfill's start {self.start} lies after its end {self.end}. Swap them.")
        return Interval(first, last + timedelta(seconds=1))

    def full_conf(self, settings: Settings, *, complete_only: bool) -> str:
        """The runs' conf as JSON, with the time from which upkeep is done: the end of the last interval.

        complete_only: Airflow leaves out intervals that are not over. If the backfill runs backwards, the conf names no such time, since no
        run is the last both in time and in order.
        """
        conf = dict(self.conf)
        if self.dag in list_pipeline_names(settings) and not self.backwards and "upkeep_from" not in conf:
            found = data_intervals_starting_within(load_pipeline_declaration(settings, self.dag).schedule, self.days)
            ends = [one.end for one in found if not complete_only or one.end < datetime.now(UTC)]
            conf |= {"upkeep_from": ends[-1].isoformat()} if ends else {}
        return json.dumps(conf)


def translate_airflow_arguments(arguments: list[str]) -> list[str]:
    """The arguments that Airflow gets instead of these of `./airflow`. May print a line of advice on standard error.

    Raises UsageError for an option that has no counterpart, and for a backfill whose runs would wait for ever.
    """
    settings = Settings.current()
    match arguments:
        case [("dags" | "backfill"), ("backfill" | "create"), *options] if {"-h", "--help"} & set(options):
            return (
                ["backfill", "create", "--help"] if airflow_line() == 3 and arguments[:2] == ["dags", "backfill"] else arguments
            )
        case ["dags", "backfill", *options] if airflow_line() == 2:
            return _backfill_arguments_for_airflow_2(settings, _dags_backfill_parser().parse_args(options))
        case ["dags", "backfill", *options]:
            return _convert_to_airflow_3_backfill(settings, _dags_backfill_parser().parse_args(options))
        case ["backfill", "create", *options] if airflow_line() == 3:
            return _complete_backfill_create(settings, options)
    return arguments


def _backfill_arguments_for_airflow_2(settings: Settings, given: argparse.Namespace) -> list[str]:
    if given.treat_dag_as_regex or given.treat_dag_id_as_regex:
        # The schedule of a DAG is held by its name, and its conf follows from its declaration.
        raise UsageError(
            f"'dags backfill --treat-dag-as-regex' would let the DAGs' schedules start the days by themselves. {_ONE_DAG}"
        )
    wanted = _read_airflow_2_backfill(given)
    given.start_date, given.end_date = wanted.start, _make_end_inclusive(wanted.end)
    if wanted.dag in list_pipeline_names(settings):
        given.conf = wanted.full_conf(settings, complete_only=False)
    if not (given.dry_run or given.rerun_failed_tasks):
        given.reset_dagruns = given.yes = True  # or days that ran already would be passed over
    return ["dags", "backfill", wanted.dag, *_format_options(_dags_backfill_parser(), given)]


def _convert_to_airflow_3_backfill(settings: Settings, given: argparse.Namespace) -> list[str]:
    for name, remedy in _REFUSED.items():
        if getattr(given, name):
            raise UsageError(f"'dags backfill --{name.replace('_', '-')}' has no counterpart on Airflow 3. {remedy}")
    wanted = _read_airflow_2_backfill(given)
    behaviour = "failed" if given.rerun_failed_tasks and not given.reset_dagruns else "completed"
    more = {"reprocess_behavior": behaviour, "run_backwards": given.run_backwards, "dry_run": given.dry_run}
    active = ["--max-active-runs", given.max_active_runs or "1"]
    found = ["--dag-id", wanted.dag, "--from-date", wanted.start, "--to-date", wanted.end, *active]
    if given.conf:
        found += ["--dag-run-conf", given.conf]
    found += _format_options(_backfill_create_parser(), argparse.Namespace(**more))
    return _complete_backfill_create(settings, found)


def _complete_backfill_create(settings: Settings, options: list[str]) -> list[str]:
    parser = _backfill_create_parser()
    given, rest = parser.parse_known_args(options)
    if not (given.dag_id and given.from_date and given.to_date):
        return ["backfill", "create", *options]  # Airflow itself says best what is missing
    wanted = RequestedBackfill(
        given.dag_id, given.from_date, given.to_date, _parse_run_conf(given.dag_run_conf), given.run_backwards, given.dry_run
    )
    wanted.days  # noqa: B018  # refuses what is no date
    if not wanted.dry_run:
        refuse_backfill_that_cannot_start(settings, wanted.dag)
    given.to_date = _make_end_inclusive(wanted.end)
    given.reprocess_behavior = given.reprocess_behavior or "completed"
    given.max_active_runs = given.max_active_runs or "1"
    if wanted.dag in list_pipeline_names(settings):
        given.dag_run_conf = wanted.full_conf(settings, complete_only=True)
    return ["backfill", "create", *_format_options(parser, given), *rest]


def _read_airflow_2_backfill(given: argparse.Namespace) -> RequestedBackfill:
    start, end = given.start_date or given.end_date, given.end_date or given.start_date
    if not start:
        raise UsageError("A backfill needs its days: dags backfill DAG -s FIRST_DAY -e LAST_DAY")
    wanted = RequestedBackfill(given.dag_id, start, end, _parse_run_conf(given.conf), given.run_backwards, given.dry_run)
    wanted.days  # noqa: B018  # refuses what is no date
    return wanted


def _parse_run_conf(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        raise UsageError('The conf is no JSON object. Write it as: \'{"tables": ["..."]}\'') from None
    if not isinstance(found, dict):
        raise UsageError('The conf is no JSON object. Write it as: \'{"tables": ["..."]}\'')
    return found


def _make_end_inclusive(end: str) -> str:
    """To Airflow a date is its first instant; here a date as the end includes that day."""
    day = parse_date(end)
    return end if day is None else f"{day}T23:59:59"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}.")


def _dags_backfill_parser() -> argparse.ArgumentParser:
    """The options of Airflow 2.11's `dags backfill`, and the number of runs at once, which there only the DAG decides."""
    parser = _Parser(prog="dags backfill", add_help=False)
    parser.add_argument("dag_id")
    for short, long in (
        ("-s", "--start-date"),
        ("-e", "--end-date"),
        ("-c", "--conf"),
        ("-t", "--task-regex"),
        ("-S", "--subdir"),
    ):
        parser.add_argument(short, long)
    for long in ("--pool", "--delay-on-limit", *(["--max-active-runs"] if airflow_line() == 3 else [])):
        parser.add_argument(long)
    flags = ("-m --mark-success", "-l --local", "-x --donot-pickle", "-y --yes", "-i --ignore-dependencies", "-n --dry-run")
    more = (
        "-I --ignore-first-depends-on-past",
        "-v --verbose",
        "-B --run-backwards",
        "--continue-on-failures",
        "--disable-retry",
    )
    rest = ("--reset-dagruns", "--rerun-failed-tasks", "--treat-dag-as-regex", "--treat-dag-id-as-regex")
    for names in (*flags, *more, *rest):
        parser.add_argument(*names.split(), action="store_true")
    return parser


def _backfill_create_parser() -> argparse.ArgumentParser:
    """The options of `backfill create` that matter here; others pass unchanged."""
    parser = _Parser(prog="backfill create", add_help=False)
    for name in ("dag-id", "from-date", "to-date", "reprocess-behavior", "max-active-runs", "dag-run-conf"):
        parser.add_argument(f"--{name}")
    for name in ("run-backwards", "dry-run"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser


def _format_options(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[str]:
    """The options as arguments again, by their long names."""
    found: list[str] = []
    for action in parser._actions:
        value = getattr(given, action.dest, None)
        if action.option_strings and value:
            found += [action.option_strings[-1]] if value is True else [action.option_strings[-1], str(value)]
    return found
