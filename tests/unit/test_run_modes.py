"""What a run in each mode may name and must name, in the words of whoever was asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration.dag_run import FORM_FIELDS
from sluice.cli.running.run import OPTION_NAMES
from sluice.declare.interval import Interval
from sluice.errors import UsageError
from sluice.run_modes import INCREMENT, MODES, REFRESH, REPLAY, OptionNames, check_run_mode
from sluice.runs.execution.stages import StageOptions
from sluice.runs.job import ARGUMENT_NAMES, JobRequest, run_recorded_stage
from sluice.settings import Settings

JANUARY = Interval.of("2026-01-01", "2026-01-31")


@pytest.mark.parametrize("options", [FORM_FIELDS, OPTION_NAMES, ARGUMENT_NAMES])
def test_every_caller_has_the_same_rules(options: OptionNames) -> None:
    days, tables = ("2026-01-01", "2026-01-02"), ("heart_rate",)
    allowed = [
        (mode, some_days, some_tables)
        for mode in MODES
        for some_days in ((None, None), days)
        for some_tables in ((), tables)
        if is_allowed(mode.name, some_days, some_tables, options)
    ]
    assert allowed == [
        (INCREMENT, (None, None), ()),
        (REPLAY, days, ()),
        (REPLAY, days, tables),
        (REFRESH, (None, None), tables),
    ]


def is_allowed(mode: str, days: tuple[Any, ...], tables: tuple[str, ...], options: OptionNames) -> bool:
    try:
        return check_run_mode(mode, days, tables, options).name == mode
    except UsageError:
        return False


@pytest.mark.parametrize(
    ("mode", "days", "tables", "options", "said"),
    [
        ("refesh", (), (), ARGUMENT_NAMES, r"There is no mode 'refesh'\. Did you mean 'refresh'"),
        ("replay", ("2026-01-01", None), (), OPTION_NAMES, "^--mode replay needs --from and --to: the first and the last day"),
        ("replay", ("", ""), (), FORM_FIELDS, r"^Mode 'replay' needs From and To \(from_date, to_date\)"),
        (
            "increment",
            ("2026-01-01", ""),
            (),
            FORM_FIELDS,
            r"Leave From and To \(from_date, to_date\) empty, or choose mode 'replay'",
        ),
        ("refresh", (), (), ARGUMENT_NAMES, "^Mode 'refresh' needs --tables: what to make from scratch"),
        ("increment", (), ("a",), FORM_FIELDS, "Leave Tables empty, or choose mode 'replay' or mode 'refresh'"),
    ],
)
def test_what_a_mode_does_not_allow_is_said(
    mode: str, days: tuple[Any, ...], tables: tuple[str, ...], options: OptionNames, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        check_run_mode(mode, days, tables, options)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mode": "replay"}, "needs --from and --to"),
        ({"mode": "refresh"}, "needs --tables"),
        ({"mode": "refresh", "options": StageOptions(("heart_rate",)), "interval": JANUARY}, "takes no days"),
        ({"mode": "refresh", "options": StageOptions(("readings",))}, "may_refresh=True"),
        ({"mode": "replay", "options": StageOptions(("heart_rates",)), "interval": JANUARY}, "Did you mean 'heart_rate'"),
        ({"options": StageOptions(("heart_rate",))}, "takes what is new since the last run, for all tables. Leave out --tables"),
        ({"interval": JANUARY, "options": StageOptions(optimize_now=("heart_rat",))}, "Did you mean 'heart_rate'"),
    ],
)
def test_a_job_refuses_it_before_spark_starts(settings: Settings, asked: dict[str, Any], said: str) -> None:
    """The interval of a scheduled run, which is only recorded, is refused nowhere: the last case gets past it."""
    with pytest.raises(UsageError, match=said):
        run_recorded_stage(settings, JobRequest("gym", "silver", **asked))
