"""The arguments of a job, whoever starts it: what to do, of which run it is, and how long it may wait."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestration.dag_run import RunRequest, run_identity

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

LEASE_WAIT_SECONDS = 300
"""How long a job waits for another writer of the pipeline before it gives up with exit code 3."""


def spark_job_arguments(pipeline: str, asked: RunRequest, context: Context) -> list[str]:
    """All arguments of a job but the file of its answer. The interval is half-open, as two instants."""
    days = asked.interval
    optional = {
        "--from": days.start.isoformat() if days else "",
        "--to": days.end.isoformat() if days else "",
        "--tables": ",".join(asked.tables),
        "--verify": asked.verify if asked.verify != "next" else "",
        "--optimize-now": ",".join(asked.optimize_now),
    }
    return [
        *("--pipeline", pipeline, "--mode", asked.mode),
        *(part for name, value in optional.items() if value for part in (name, value)),
        *run_identity_arguments(context),
    ]


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
