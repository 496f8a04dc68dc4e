"""What a run of the DAG `erasure` may be asked with: ids of requests, and nothing that could be an identifier of somebody.

Without Airflow: its API server asks here before Airflow keeps what was sent, and so does `./airflow`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sluice.errors import UsageError
from sluice.runs import due
from sluice.settings import Settings

DAG_ID = "erasure"

REQUEST = "^[0-9a-f]{12}$(?!\n)"
"""How an id looks. `$` alone would let a line break follow."""
_DATES = ("logical_date", "run_after", "data_interval_start", "data_interval_end")
_FREE = ("note", "partition_key")
_COMMANDS = (("dags", "trigger"), ("dags", "test"), ("dags", "backfill"), ("backfill", "create"))
_OPTIONS = (
    "-c", "--conf", "--dag-run-conf", "-r", "--run-id", "--dag-id", "-e", "--exec-date", "-l", "--logical-date", "-s", "--start-date", "-o",
    "--output", "-v", "--verbose",
)  # fmt: skip
_RUN = re.compile(r"[a-z]{1,24}([-_]{1,2}[a-z]{1,24}){0,3}([-_]{1,2}[0-9]{1,4})?\Z")
"""How a run may be called. What Airflow calls one has a date: `manual__2026-11-22T00:00:00+00:00`, and letters after that."""
_DATED = re.compile(r"[a-z_]{1,24}__(.{10,32}?)(_[A-Za-z0-9]{8})?\Z")


def may_be_asked(body: Mapping[str, Any]) -> bool:
    """Whether a request for a run, as Airflow's API takes it, says nothing but which requests, when, and a plain name of the run."""
    allowed = {"conf", "dag_run_id", *_DATES, *_FREE}
    return (
        body.keys() <= allowed
        and not any(body.get(name) for name in _FREE)
        and all(body.get(name) is None or _is_date(body[name]) for name in _DATES)
        and (not body.get("dag_run_id") or _is_name(body["dag_run_id"]))
        and is_of_ids(body.get("conf"))
    )


def is_of_ids(conf: Any) -> bool:
    """Whether a conf holds ids of requests that there are, or nothing. A bare MAC address looks as an id does."""
    if conf is None or conf == {}:
        return True
    if not isinstance(conf, dict) or conf.keys() != {"requests"} or not isinstance(conf["requests"], list):
        return False
    if not all(isinstance(one, str) and re.search(REQUEST, one) for one in conf["requests"]):
        return False
    return not conf["requests"] or due.all_exist(Settings.current(), conf["requests"])


def refuse_identifiers(arguments: Sequence[str]) -> None:
    """Refuse a command of Airflow's that starts this DAG with any word but these: Airflow keeps its words before it looks into them.

    Raises UsageError, which has none of them.
    """
    every = [part for word in arguments for part in (word, word.partition("=")[2])]
    if tuple(arguments[:2]) in _COMMANDS and DAG_ID in every and not all(map(_is_harmless, arguments[2:])):
        raise UsageError(
            f"A run of the DAG '{DAG_ID}' takes --conf '{{\"requests\": [...]}}' with ids of requests, as `sluice erase list` tells them, "
            "dates, and a run's name of a few words. Write options in full and apart from their values. Nothing was kept."
        )


def _is_harmless(word: str) -> bool:
    option, joined, value = word.partition("=")
    if option in _OPTIONS:
        return not joined or _is_harmless(value)
    return word == DAG_ID or _is_date(word) or _is_name(word) or _is_text_of_ids(word)


def _is_text_of_ids(text: str) -> bool:
    try:
        return is_of_ids(json.loads(text))
    except ValueError:
        return False


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and "-" in value and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _is_name(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    dated = _DATED.match(value)
    return bool(_RUN.match(value)) or (dated is not None and _is_date(dated[1]))
