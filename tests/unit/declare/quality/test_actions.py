"""Actions: what their records say fits together, and what others keep of them stays as it is."""

from __future__ import annotations

import pytest

from sluice import declare
from sluice.declare import expect, expect_or_fail, materialized_view
from sluice.declare.quality.expectations import ACTION_COUNTS, Action, ExpectationDecorator
from sluice.errors import DeclarationError
from sluice.flow_counts import ALERT_COUNTS, NEWS_COUNTS
from sluice.runs import run_ledger

KNOWN = {
    "warn": (False, False, False, ""),
    "fail": (False, False, True, ""),
    "drop": (True, False, False, "dropped"),
    "quarantine": (True, True, False, "quarantined"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_an_action_says_what_becomes_of_a_row(name: str) -> None:
    one = Action(name)
    assert (one.takes_row_out, one.sets_row_aside, one.stops_flow, one.counted_as) == KNOWN[name]


@pytest.mark.parametrize("action", Action)
def test_every_action_has_its_decorators(action: Action) -> None:
    one = getattr(declare, action.decorator)("rule", "a > 0")
    several = getattr(declare, action.decorator.replace("expect", "expect_all", 1))({"rule": "a > 0"})
    assert isinstance(one, ExpectationDecorator)
    assert one == several
    assert [rule.action for rule in one.expectations] == [action]  # type: ignore[union-attr]


def test_no_row_that_is_taken_out_goes_uncounted() -> None:
    assert all(action.counted_as for action in Action if action.takes_row_out)
    assert set(ACTION_COUNTS) <= {*ALERT_COUNTS} & {*NEWS_COUNTS} & {*run_ledger.RUNS.names}


def test_what_takes_a_row_out_goes_before_what_lets_it_stay() -> None:
    """A row is accepted only if it fails no rule that removes it; so an action that keeps it must not decide then."""
    staying, taking = ([one for one in Action if one.takes_row_out is out] for out in (False, True))
    assert all(one.goes_before(other) for one in taking for other in staying)
    assert Action.QUARANTINE.goes_before(Action.DROP)
    assert not any(one.goes_before(one) for one in Action)


@pytest.mark.parametrize("action", Action)
def test_the_repr_of_an_action_is_its_name_alone(action: Action) -> None:
    """It is part of the fingerprints of tables: with another repr every table of every lake would be stale."""
    assert repr(action) == f"<Action.{action.name}: '{action.name.lower()}'>"


@pytest.mark.parametrize("action", Action)
def test_a_view_takes_the_actions_that_leave_its_rows_alone(action: Action) -> None:
    expecting = getattr(declare, action.decorator)("rule", "a > 0")(lambda rows: rows)
    if action.takes_row_out:
        others = " or ".join(one.decorator for one in Action if not one.takes_row_out)
        refused = " or ".join(one.counted_as for one in Action if one.takes_row_out)
        with pytest.raises(DeclarationError, match=f"a view's rows cannot be {refused}; {others}"):
            materialized_view(reads="a", keys="id", name="made")(expecting)
    else:
        materialized_view(reads="a", keys="id", name="made")(expecting)


def test_a_share_is_for_rules_that_rows_may_fail() -> None:
    expect("rule", "a > 0", at_most=0.1)
    with pytest.raises(DeclarationError, match="with at_most, use @expect; @expect_or_fail lets no row fail"):
        expect_or_fail("rule", "a > 0", at_most=0.1)
