"""Alerts by webhook: a task that failed for good, a late run, a stale table, a rule that too many rows fail, an erasure that is due.

SLUICE_ALERTS names the receiver: an http or https address, or a file that holds one, since such an address often is a secret. It is
read when an alert is sent. Without it nothing is sent. An alert holds ids and counts only, and never makes a task fail.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestration.dag_run import dag_run_name
from sluice.flow_counts import ALERT_COUNTS
from sluice.printable import count_noun
from sluice.settings import Settings

TIMEOUT_SECONDS = 10

log = logging.getLogger(__name__)


def send_alert(kind: str, text: str, **facts: Any) -> bool:
    """POST an alert as JSON: `kind`, `text` (a sentence), `at` and the facts. Returns whether the receiver accepted it; never raises."""
    try:
        receiver = _alert_receiver_address()
        if receiver is None:
            return False
        body = {"kind": kind, "text": text, "at": datetime.now(UTC).isoformat(timespec="seconds"), **facts}
        request = urllib.request.Request(receiver, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")
        with _OPENER.open(request, timeout=TIMEOUT_SECONDS):
            return True
    # The messages of these errors may hold the address, and so a secret: log only the type of the error.
    except urllib.error.HTTPError as error:
        log.warning("The alert '%s' was not taken: its receiver answered %s.", kind, error.code)
    except (OSError, ValueError, http.client.HTTPException) as error:
        log.warning("The alert '%s' could not be sent (%s). Is SLUICE_ALERTS right?", kind, type(error).__name__)
    return False


def task_failed(context: Any) -> None:
    """Send an alert: Airflow's callback for a task that failed and will not be retried."""
    task = context["ti"]
    error = type(context.get("exception")).__name__
    send_alert(
        "task failed",
        f"Task {task.task_id} of {task.dag_id} failed at try {task.try_number} ({error}).",
        pipeline=task.dag_id,
        task=task.task_id,
        run=dag_run_name(task.dag_id, task.run_id),
        try_number=task.try_number,
        error=error,
    )


def deadline_missed(pipeline: str, deadline: str, context: Any) -> None:
    """Send an alert: Airflow's callback for a run that has not ended in time. Only Airflow 3 calls it."""
    run = dag_run_name(pipeline, context["dag_run"]["dag_run_id"])
    send_alert("run late", f"A run of {pipeline} has not ended after {deadline}.", pipeline=pipeline, run=run, deadline=deadline)


def alert_stale_table(pipeline: str, table: str, age: timedelta, freshness: str) -> None:
    """Send an alert about a published table whose data is older than its declared freshness."""
    seconds = round(age.total_seconds())
    text = (
        f"{pipeline}.{table} has had no new data for {count_noun(age.days, 'day')} "
        f"and {count_noun(age.seconds // 3600, 'hour')}; its target is {freshness}."
    )
    send_alert("stale table", text, pipeline=pipeline, table=table, age_seconds=seconds, freshness=freshness)


def alert_open_erasure(pipeline: str, request: str, state: str, due_at: datetime, now: datetime) -> None:
    """Send an alert about an unfinished request for erasure, shortly before its deadline or after it."""
    days = int((due_at - now) / timedelta(days=1))
    late = "is overdue" if due_at < now else f"must be certified in {count_noun(days, 'day')} at the latest"
    text = f"The erasure {request} of {pipeline} {late}; it is '{state}'."
    kind = "erasure late" if due_at < now else "erasure due"
    send_alert(kind, text, pipeline=pipeline, request=request, state=state, due_at=due_at.isoformat(), days_left=days)


def alert_exceeded_rules(pipeline: str, run: str, report: Mapping[str, Any], alert_when: Mapping[str, float]) -> None:
    """Send an alert for each rule of `alert_when` that more rows of this report fail than it allows."""
    for flow in report.get("flows", []):
        counts = {name: flow.get(name) or 0 for name in ALERT_COUNTS}
        counts |= flow.get("quarantine_reasons") or {}
        counts |= flow.get("rules") or {}
        counts |= {name: found["count"] for name, found in (flow.get("table_rules") or {}).items()}
        for name, most in alert_when.items():
            table, _, rule = name.partition(".")
            rows = counts.get(rule, 0)
            if table == flow.get("flow") and rows > most:
                text = f"{count_noun(rows, 'row')} of {pipeline}.{table} failed '{rule}' in one run; at most {most:g} may."
                send_alert("rule threshold", text, pipeline=pipeline, table=table, rule=rule, rows=rows, at_most=most, run=run)


def _alert_receiver_address() -> str | None:
    value = os.environ.get("SLUICE_ALERTS", "").strip()
    if value and "://" not in value:
        value = (Settings.current().root / value).read_text().strip()
    if value and urllib.parse.urlsplit(value).scheme not in ("http", "https"):
        raise ValueError
    return value or None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the counts to an address that nobody configured."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)
