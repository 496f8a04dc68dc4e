"""An erasure that is killed before or after any of its writes, and run again: the end is the same as if nothing had happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.crash.test_commit_points import Crash, crash_at
from tests.integration.erasure import test_erasure_histories as histories

from sluice.erasure import request_events, request_record
from sluice.pipeline_records import PipelineRecords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.crash

POINTS = [
    ("sluice.privacy.suppression_list", "suppress_subjects"),
    ("sluice.erasure.erasure_ledger", "record_erasure_step"),
    ("sluice.erasure.steps.rows", "delete_by_merge"),
    ("sluice.flows.gold.view_batch", "apply_merge_operations"),
    ("sluice.ingest.landing.rewriting", "replace_rewritten_files"),
    ("sluice.ingest.landing.rewriting", "_record_rewritten_files"),
    ("sluice.erasure.steps.sweep", "remove_leftover_files"),
    ("sluice.erasure.requests", "advance_request_state"),
    ("sluice.vacuum", "vacuum_table"),
]
OFTEN = ("sluice.erasure.steps.rows", "delete_by_merge")
assert OFTEN in POINTS, "make test would try none of them"


def cases() -> list[Any]:
    """Every point, before and after; `make test` has the one where rows are out of some tables and in others, of a request without a control."""
    found: list[Any] = []
    for module, function in POINTS:
        short = f"{module.rsplit('.', 1)[1]}.{function}"
        for after in (False, True):
            often = after and (module, function) == OFTEN
            marks = () if often else pytest.mark.slow
            found.append(pytest.param(module, function, after, not often, id=f"{short}-{after}", marks=marks))
    return found


@pytest.mark.parametrize(("module", "function", "after", "controlled"), cases())
def test_a_killed_erasure_ends_as_one_that_was_not(
    settings: Settings,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    module: str,
    function: str,
    after: bool,
    controlled: bool,
) -> None:
    if not controlled:
        request.getfixturevalue("uncontrolled")
    lake = histories.lake_at(settings, spark, histories.SMALL)
    histories.first_day(lake)
    lake.run()
    histories.ask(lake)
    crashed = crash_at(monkeypatch, module, function, after)
    try:
        lake.run("propagate_deletions")
        histories.finish(lake)
    except Crash:
        pass
    monkeypatch.undo()
    # Before anybody goes on with the erasure, the pipeline runs as it does every day.
    lake.land("notes/2.jsonl", histories.lines(histories.said(histories.HER, 7), histories.said(histories.OTHER, 7)))
    lake.run()
    lake.run("propagate_deletions")
    histories.finish(lake)
    lake.run("propagate_deletions")  # what came after she was erased is taken out of the landing folder by the next one
    assert crashed
    assert histories.residue(lake) == []
    assert [request.state for request in request_record.list_erasure_requests(PipelineRecords(settings, "house"))] == [
        request_events.PHYSICALLY
    ]
    assert lake.rows("note", "who", "number") == [(histories.OTHER, 1), (histories.OTHER, 7)]
    assert lake.rows("by_person") == [(histories.OTHER, 2)]
    # Once each: what was rewritten was not taken for a new delivery.
    assert lake.rows("notes", "who", "number") == [(histories.OTHER, 1), (histories.OTHER, 2), (histories.OTHER, 7)]
