"""Which deliveries a batch of outcomes brings back, or leaves as they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.declare import Source
from sluice.flows.silver.delivery_scope import DeliveryScope, _find_source_scope
from sluice.ingest import delivery_tables
from sluice.record_states import DISCARDED, ERASED, INGESTED, LOST, MISSED, QUARANTINED

REPLACING = Source(name="a", redelivery="replace")


def _find_scope_of_last(lake: Path, outcomes: Sequence[tuple[int, str, int]]) -> DeliveryScope:
    """Records outcomes of versions of one file: delivery, state, rows. Returns the scope of a batch that holds the last."""
    for delivery, state, rows in outcomes:
        at = datetime(2026, 11, delivery, tzinfo=UTC)
        row = {"delivery": delivery, "source": "a", "file": "x.json", "state": state, "rows": rows, "modified_at": at}
        delivery_tables.append_delivery_ledger_rows(
            str(lake / "outcomes"), [row | {"recorded_at": at}], delivery_tables.OUTCOMES, "r"
        )
    workspace: Any = SimpleNamespace(outcomes=str(lake / "outcomes"))
    last: Any = SimpleNamespace(delivery=delivery, file="x.json", state=state)
    return _find_source_scope(workspace, REPLACING, [last])


@pytest.mark.parametrize("state", [LOST, MISSED, QUARANTINED, DISCARDED, ERASED])
@pytest.mark.parametrize("rows", [3, 0])
def test_an_earlier_version_counts_again_when_the_later_one_no_longer_does(state: str, rows: int, tmp_path: Path) -> None:
    scope = _find_scope_of_last(tmp_path, [(1, INGESTED, 3), (2, INGESTED, rows), (2, state, 0)])
    assert scope == DeliveryScope(fresh=(1,), dead=(2,) if rows else ())


@pytest.mark.parametrize("state", [MISSED, QUARANTINED, DISCARDED])
def test_a_version_that_never_counted_leaves_the_earlier_one_as_it_is(state: str, tmp_path: Path) -> None:
    assert _find_scope_of_last(tmp_path, [(1, INGESTED, 3), (2, state, 0)]) == DeliveryScope()
