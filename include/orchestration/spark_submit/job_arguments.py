"""What a job is told, whoever starts it: its arguments, which say what to do, of which run it is and how long it may wait; and its variables."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestration.dag_run import RunRequest, run_identity
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

LEASE_WAIT_SECONDS = 300
"""How long a job waits for another writer of the pipeline before it gives up with exit code 3."""


def spark_job_arguments(pipeline: str, asked: RunRequest, context: Context, answer: tuple[str, str]) -> list[str]:
    """The job's arguments as texts. The interval is half-open, as two instants. answer: see `run_identity_arguments`."""
    days = asked.interval
    optional = {
        "--from": days.start.isoformat() if days else "",
        "--to": days.end.isoformat() if days else "",
        "--tables": ",".join(asked.tables),
        "--verify": "all" if asked.verify_all else "",
        "--optimize-now": ",".join(asked.optimize_now),
    }
    return [
        *("--pipeline", pipeline, "--mode", asked.mode),
        *(part for name, value in optional.items() if value for part in (name, value)),
        *run_identity_arguments(context, answer),
    ]


def run_identity_arguments(context: Context, answer: tuple[str, str]) -> list[str]:
    """The arguments that tell any job its run and how long it may wait.

    answer: the argument for the path of its report, or of the file by which it is followed, and that path.
    """
    return [
        *("--run-id", run_identity(context), "--airflow-run", _attempt_of_run(context)),
        *("--wait", str(LEASE_WAIT_SECONDS), *answer),
    ]


def digest_job_arguments(arguments: Sequence[str], context: Context) -> str:
    """8 hex digits that are the same for all attempts of a task that are asked for the same. arguments: with ("", "") as answer."""
    asked = [one for one in arguments if one != _attempt_of_run(context)]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]


def _attempt_of_run(context: Context) -> str:
    return f"{run_identity(context)}-{context['ti'].try_number}"


_OWN_TO_AIRFLOW = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW", "SLUICE_ALERTS", "SLUICE_AIRFLOW")
"""The prefixes of variables that hold Airflow's keys, connections and addresses. No job needs them, so no job gets them."""


def build_job_environment(settings: Settings) -> dict[str, str]:
    """The variables of this process without Airflow's own, and Sluice's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_TO_AIRFLOW)}
    return kept | build_spark_environment(settings)
