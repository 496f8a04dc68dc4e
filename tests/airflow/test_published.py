"""What is announced of a table, by its log, and the page that shows the log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def table(checkout: Checkout) -> Iterator[str]:
    path = Path(PipelineRecords(checkout.settings, "gym").table_path("gold", "device_day"))
    write_deltalake(path, pa.table({"device_id": [1, 2]}))
    yield str(path)
    shutil.rmtree(checkout.settings.lake)


def version(settings: Settings) -> Any:
    from orchestration.published import find_latest_data_version

    found = find_latest_data_version(PipelineRecords(settings, "gym"), "device_day")
    return found and (found.data.version, found.rows)


def test_upkeep_makes_no_new_version_of_the_data(checkout: Checkout, table: str) -> None:
    assert version(checkout.settings) == (0, 2)
    write_deltalake(table, pa.table({"device_id": [3]}), mode="append")
    assert version(checkout.settings) == (1, 3)
    DeltaTable(table).optimize.compact()
    for number in range(60):  # more than are looked at first
        DeltaTable(table).alter.set_table_properties({"number": str(number)}, False)
    assert DeltaTable(table).version() == 62
    assert version(checkout.settings) == (1, 3)
    DeltaTable(table).alter.add_constraint({"positive": "device_id > 0"})
    DeltaTable(table).alter.add_columns([Field("more", PrimitiveType("long"))])
    assert version(checkout.settings) == (1, 3), "another declaration is no other data"


def test_no_table_no_version(checkout: Checkout) -> None:
    assert version(checkout.settings) is None


def test_a_table_without_data_has_no_version(checkout: Checkout, table: str) -> None:
    shutil.rmtree(table)
    made = DeltaTable.create(table, pa.schema([("device_id", pa.int64())]))
    assert version(checkout.settings) == (None, 0)
    made.alter.set_table_properties({"made": "now"}, False)
    assert version(checkout.settings) == (None, 0), "nothing to announce after a commit of metadata either"
    write_deltalake(table, pa.table({"device_id": [1]}), mode="append")
    assert version(checkout.settings) == (2, 1)


@pytest.mark.parametrize(("freshness", "is_stale"), [("1 hour", False), ("1 second", True), (None, False)])
def test_a_table_that_stays_without_data_is_stale_and_not_announced(
    checkout: Checkout, table: str, monkeypatch: pytest.MonkeyPatch, freshness: str | None, is_stale: bool
) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    from orchestration import alerts
    from orchestration.published import PublishOperator

    shutil.rmtree(table)
    made = DeltaTable.create(table, pa.schema([("device_id", pa.int64())]))
    time.sleep(1.2)
    made.alter.set_table_properties({"made": "now"}, False)  # which makes its data no younger
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(alerts, "send_alert", lambda kind, text, **facts: sent.append((kind, facts["table"], facts["freshness"])))
    task = PublishOperator(task_id="publish", pipeline="gym", table="device_day", freshness=freshness)
    with pytest.raises(AirflowSkipException, match=r"no data in gym\.device_day yet"):
        task.execute({"inlet_events": {task.asset: []}})
    assert sent == ([("stale table", "device_day", "1 second")] if is_stale else [])


def test_a_log_that_has_lost_its_beginning_gives_the_newest_version(checkout: Checkout, table: str) -> None:
    delta = DeltaTable(table)
    delta.alter.set_table_properties({"made": "now"}, False)
    delta.create_checkpoint()
    Path(table, "_delta_log", f"{0:020}.json").unlink()
    assert version(checkout.settings) == (1, 2)


def event(number: int | None, *started: tuple[str, str, str]) -> SimpleNamespace:
    runs = [SimpleNamespace(dag_id=dag, run_id=run, state=state) for dag, run, state in started]
    return SimpleNamespace(extra={} if number is None else {"version": number}, created_dagruns=runs)


@pytest.mark.parametrize(
    ("triggering", "earlier", "goes_on"),
    [
        ([4], [], True),
        ([4], [event(4, ("report", "before", "success"))], False),
        ([4], [event(4, ("report", "before", "failed"))], True),
        ([4], [event(4, ("another", "before", "success"))], True),
        ([4], [event(3, ("report", "before", "success"))], True),
        ([0], [event(0, ("report", "before", "success"))], False),
        ([4, 5], [event(4, ("report", "before", "success"))], True),
        ([], [event(4, ("report", "before", "success"))], True),
    ],
)
def test_a_version_that_was_used_is_skipped(checkout: Checkout, triggering: list[int], earlier: list[Any], goes_on: bool) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    from orchestration.published import new_version

    task = new_version("gym", "device_day")
    mine = ("report", "now", "running")
    context = {
        "dag_run": SimpleNamespace(dag_id="report", run_id="now"),
        "triggering_asset_events": {task.asset: [event(number, mine) for number in triggering]} if triggering else {},
        "inlet_events": {task.asset: [*earlier, *(event(number, mine) for number in triggering)]},
    }
    if goes_on:
        assert task.execute(context) == (max(triggering) if triggering else None)
    else:
        with pytest.raises(AirflowSkipException):
            task.execute(context)


def test_the_page_of_a_table(checkout: Checkout, table: str) -> None:
    from orchestration.ui import render_history_page

    row = {"run": "af-1", "pipeline": "gym", "stage": "gold", "mode": "increment", "flow": "device_day", "state": "done"}
    note = {"note": "<script>alert(1)</script>", "rows_in": 5, "started_at": NOW, "ended_at": NOW + timedelta(seconds=1)}
    run_ledger.append_run_rows(PipelineRecords(checkout.settings, "gym"), [row | note])
    for stage in ("gold", "optimize"):
        page = render_history_page(checkout.settings, "gym", stage) or ""
        assert "<h2>device_day</h2>" in page and "version 0, 2 rows, 1 file" in page
        assert "<td>af-1" in page and "<td>2026-01-01 00:00:00" in page
        assert "<script>" not in page and "&lt;script&gt;" in page
    assert "gym: gold" in (render_history_page(checkout.settings, "gym", "gold") or "")
    assert "<script>" not in (render_history_page(checkout.settings, "gym", "<script>") or "")


def test_the_report_of_a_pipeline_is_made_by_a_process_that_loads_what_airflow_does_not(checkout: Checkout, table: str) -> None:
    from orchestration import plugin

    page = plugin.render_report_page(checkout.settings, "gym") or ""
    assert "device_day" in page and "2 rows" in page and "<svg" in page and "<script" not in page
    assert plugin.render_report_page(checkout.settings, "../gym") is None


def test_the_page_of_a_pipeline_without_tables(checkout: Checkout) -> None:
    from orchestration.ui import render_history_page

    assert "no tables yet" in (render_history_page(checkout.settings, "gym", "gold") or "")
    assert render_history_page(checkout.settings, "../gym", "gold") is None
