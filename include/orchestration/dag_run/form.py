"""The form that "Trigger" opens in Airflow's UI, as JSON schema; a run's `conf` by REST or CLI is checked by the same."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import Param

from sluice.pipeline_stages import VERIFY, VERIFY_ALL, VERIFY_NEXT, name_backfill_upkeep

# "$" alone would let a line break follow.
TABLE = "^[a-z][a-z0-9_]{0,99}$(?!\n)"
INSTANT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.]\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?$(?!" + "\n)"
"""Airflow does not check the format `date-time` by itself."""

MODES = {
    "increment": "what is new since the last run",
    "replay": "the days below again, with today's code",
    "refresh": "the tables below from scratch, with all that read them",
}


def trigger_form_fields() -> dict[str, Param]:
    """The fields by name. What one field asks of another is checked by `RunRequest`, since a schema of one field cannot."""
    day: dict[str, Any] = {"type": ["null", "string"], "format": "date"}
    return {
        "mode": Param(
            "increment",
            type="string",
            enum=list(MODES),
            values_display=dict(zip(MODES, (f"{mode}: {text}" for mode, text in MODES.items()), strict=True)),
            title="Mode",
            description="increment and refresh take no days; replay needs both, refresh needs tables.",
        ),
        "from_date": Param(None, title="From", description="replay: the first day (UTC).", **day),
        "to_date": Param(None, title="To", description="replay: the last day (UTC); it is taken too.", **day),
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "pattern": TABLE},
            uniqueItems=True,
            maxItems=100,
            title="Tables",
            description="Only these tables, one a line. A refresh needs at least one; for a replay, none means all.",
        ),
        VERIFY.name: Param(
            VERIFY_NEXT,
            type="string",
            enum=[VERIFY_NEXT, VERIFY_ALL],
            title="Verify",
            description="Which tables the last task recomputes from bronze and compares.",
        ),
        "upkeep_from": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=INSTANT,
            section="Set by backfills",
            title="Upkeep from",
            description=f"In a backfill, {name_backfill_upkeep()} run only where the interval ends then or later.",
        ),
    }
