"""Which tables are known to differ, by what the run ledger says of their verifications."""

from __future__ import annotations

from sluice.record_states import DONE, FAILED
from sluice.runs.execution.verifying import list_differing_tables
from sluice.runs.run_ledger import Row


def verified(*said: tuple[str, str, str | None], stage: str = "verify") -> list[Row]:
    return [{"stage": stage, "flow": flow, "state": state, "verified_part": part} for flow, state, part in said]


def test_a_table_differs_until_all_of_it_that_differed_is_found_equal() -> None:
    whole = verified(("sale", FAILED, "1/1"), ("sale", DONE, "1/2"))
    assert list_differing_tables(whole, {"sale"}) == ["sale"], "the other half may differ still"
    assert list_differing_tables(whole + verified(("sale", DONE, "2/4"), ("sale", DONE, "4/4")), {"sale"}) == []
    assert list_differing_tables(whole + verified(("sale", DONE, "1/1")), {"sale"}) == []
    part = verified(("sale", FAILED, "3/8"), ("sale", DONE, "4/8"))
    assert list_differing_tables(part, {"sale"}) == ["sale"], "a turn of another part says nothing of this one"
    assert list_differing_tables(part + verified(("sale", DONE, "1/2")), {"sale"}) == []
    assert list_differing_tables(verified(("sale", DONE, "1/1"), ("sale", FAILED, "1/1")), {"sale"}) == ["sale"]
    none = verified(("sale", FAILED, None))
    assert list_differing_tables(none, {"sale"}) == ["sale"]
    assert list_differing_tables(none + verified(("sale", DONE, "2/8")), {"sale"}) == [], "there was no verdict to refute"


def test_what_is_declared_no_longer_and_other_stages_do_not_count() -> None:
    rows = verified(("sold", FAILED, "1/1")) + verified(("sale", FAILED, None), stage="silver")
    assert list_differing_tables(rows, {"sale"}) == []
