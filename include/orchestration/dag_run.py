"""Decides what a DAG run has to do, by its type, its data interval and the trigger form, never by its id, and tells jobs by their arguments.

Imports no Airflow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from sluice.declare.interval import Interval, parse_instant
from sluice.declare.schedule_intervals import whole_days_replayed
from sluice.errors import UsageError
from sluice.pipeline_stages import VERIFY, VERIFY_ALL, VerifyChoice
from sluice.run_modes import INCREMENT, REPLAY, OptionNames, check_run_mode

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

WITHOUT_FORM = ("scheduled", "asset_triggered", "dataset_triggered")
"""Run types without a trigger form; the last is Airflow 2's word for the one before it."""

LEASE_WAIT_SECONDS = 300
"""How long a job waits for another writer of the pipeline before it gives up with exit code 3."""

FORM_FIELDS = OptionNames(mode="mode '{}'", days="From and To (from_date, to_date)", tables="Tables", left_out="Leave {} empty")


@dataclass(frozen=True)
class RunRequest:
    """interval: the time that a replay or a scheduled run is for; None if a run has none. tables: empty means all.

    verify: whether the last task compares all tables, or only the next one in turn. optimize_now: the tables whose files the task
    `optimize` rewrites whether or not they need it.
    """

    mode: str
    interval: Interval | None = None
    tables: tuple[str, ...] = ()
    verify: VerifyChoice = "next"
    optimize_now: tuple[str, ...] = ()

    @property
    def takes_what_is_new(self) -> bool:
        """Whether its layers do no more than in any scheduled run. Options of `verify` and `optimize` do not count."""
        return self.mode == INCREMENT.name and not self.tables

    def as_job_arguments(self, pipeline: str) -> list[str]:
        """The arguments that tell a job what to do. The interval is half-open, as two instants."""
        days = self.interval
        optional = {
            "--from": days.start.isoformat() if days else "",
            "--to": days.end.isoformat() if days else "",
            "--tables": ",".join(self.tables),
            "--verify": self.verify if self.verify != "next" else "",
            "--optimize-now": ",".join(self.optimize_now),
        }
        given = (part for name, value in optional.items() if value for part in (name, value))
        return ["--pipeline", pipeline, "--mode", self.mode, *given]

    @classmethod
    def of(cls, context: Context) -> RunRequest:
        """A backfill replays its interval, a manual run does what the form says, and any other run takes what is new.

        Raises UsageError if the form contradicts itself.
        """
        kind = dag_run_type(context)
        if kind == "backfill":  # also the type of a scheduled run that a backfill processes again
            params = context["params"]
            return cls(
                REPLAY.name,
                whole_days_replayed(_read_data_interval(context)),
                tuple(params["tables"] or ()),
                _read_verify_choice(params),
                _read_optimize_now(params),
            )
        if kind in WITHOUT_FORM:
            return cls(INCREMENT.name, _read_data_interval(context) if kind == "scheduled" else None)
        form = context["params"]
        return replace(_read_trigger_form(form), verify=_read_verify_choice(form), optimize_now=_read_optimize_now(form))


def dag_run_type(context: Context) -> str:
    """The run's type as a word."""
    found: Any = context["dag_run"].run_type
    return str(getattr(found, "value", found))  # Airflow 2 gives the text, 3 an enumeration


def run_identity(context: Context) -> str:
    """The name of this DAG run in jobs, ledgers and alerts."""
    return dag_run_name(context["dag_run"].dag_id, context["dag_run"].run_id)


def dag_run_name(dag: str, run: str) -> str:
    """The name of a DAG run: a hash, since a run id may hold text that a user typed."""
    return "af-" + hashlib.md5(f"{dag}{run}".encode(), usedforsecurity=False).hexdigest()[:12]


def reason_to_postpone_upkeep(context: Context) -> str | None:
    """Why this run leaves optimize, vacuum and verify to another run; None if it does them itself.

    In a backfill, only the runs whose interval ends at `upkeep_from` or later do them. Raises UsageError.
    """
    if dag_run_type(context) != "backfill":
        return None
    since = context["params"].get("upkeep_from")
    if not since:
        return "A backfill leaves this to the next scheduled run."
    if _read_data_interval(context).end < parse_instant(since, "upkeep_from"):
        return f"A backfill does this once, in the run whose interval ends at {since}."
    return None


def _read_data_interval(context: Context) -> Interval:
    # Only for runs that have an interval: a manual run of Airflow 3 has none.
    start, end = context["data_interval_start"], context["data_interval_end"]
    if start is None or end is None:
        raise UsageError("This run has no data interval. Trigger a run with mode 'replay' and the days instead.")
    return Interval(start.astimezone(UTC), end.astimezone(UTC))


def _read_verify_choice(form: Any) -> VerifyChoice:
    return "all" if form[VERIFY.name] == VERIFY_ALL else "next"


def _read_optimize_now(form: Any) -> tuple[str, ...]:
    # Runs that were triggered before this field existed lack it.
    return tuple(form.get("optimize_now") or ())


def _read_trigger_form(form: Any) -> RunRequest:
    start, end, tables = form["from_date"], form["to_date"], tuple(form["tables"] or ())
    mode = check_run_mode(form["mode"], (start, end), tables, FORM_FIELDS)
    return RunRequest(mode.name, Interval.of(start, end) if mode.takes_days else None, tables)


def run_identity_arguments(context: Context) -> list[str]:
    """The arguments that tell any job its run and how long it may wait."""
    return [
        *("--run-id", run_identity(context), "--airflow-run", _attempt_of_run(context)),
        *("--wait", str(LEASE_WAIT_SECONDS)),
    ]


def digest_job_arguments(arguments: Sequence[str], context: Context) -> str:
    """8 hex digits that are the same for all attempts of a task that are asked for the same. arguments: all but the file of the answer."""
    # An earlier Sluice had two more arguments here, which it left empty. They stay, so that drivers which it submitted are found.
    asked = [*(one for one in arguments if one != _attempt_of_run(context)), "", ""]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]


def _attempt_of_run(context: Context) -> str:
    return f"{run_identity(context)}-{context['ti'].try_number}"
