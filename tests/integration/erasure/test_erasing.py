"""One call does what is due of all requests: rows, then bytes when their time has come, then the proof; and one that fails holds up no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import propagation, request_events, request_record, requests
from sluice.erasure.proof import certificate
from sluice.erasure.vault import Identifier
from sluice.errors import SluiceError
from sluice.lake.flow_report import FlowsFailed
from sluice.runs import due_requests, erasure_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

HER, HIM, OTHER = "anna-schmidt-4711", "bert-meier-0815", "cleo-nagy-2342"

notes = Source(name="notes", pattern="*.jsonl", schema="who STRING, number BIGINT", subject="who", comment="Notes.")


@table(reads="notes", keys=("who", "number"), subject="who")
def note(notes: DataFrame) -> DataFrame:
    """A note."""
    return notes.select("who", "number")


@materialized_view(reads="note", keys="who", subject="who")
def by_person(note: DataFrame) -> DataFrame:
    """Notes of each."""
    return note.groupBy("who").agg(F.count(F.lit(1)).alias("notes"))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession, tmp_path: Path) -> Lakehouse:
    settings.__dict__["state"] = tmp_path / "state"  # what other runs of this checkout leave below .sluice is not this test's
    layers = ("pipelines.house.bronze", __name__)
    pipeline = Pipeline(name="house", description="h", owner="t", layers=layers, retain="1 hour")
    house = Lakehouse(settings, spark, build_declaration_graph(pipeline, (notes, note, by_person)))
    house.land("notes/1.jsonl", "".join(json.dumps({"who": who, "number": 1}) + "\n" for who in (HER, HIM, OTHER)))
    house.run()
    return house


def ask(lake: Lakehouse, who: str) -> str:
    return requests.receive_erasure_request(lake.lake, [Identifier("who", who)]).request


def state(lake: Lakehouse, request: str) -> str:
    return request_record.read_erasure_request(lake.records, request).state


@contextmanager
def hours_later(hours: int = 2) -> Iterator[pytest.MonkeyPatch]:
    """Whoever carries out erasures reads a clock that is ahead: the retention is over, however quick or slow the machine is."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=hours)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erasure_jobs, "datetime", Clock)
        yield patch


@pytest.mark.slow
def test_rows_at_once_bytes_when_it_is_time_and_a_failure_holds_up_nobody_else(lake: Lakehouse) -> None:
    first = ask(lake, HER)
    erasure_jobs.carry_out_due_erasures(lake.workspace())
    assert state(lake, first) == request_events.LOGICALLY and {row[0] for row in lake.rows("by_person", "who")} == {HIM, OTHER}
    assert due_requests.find_due_requests(lake.records, datetime.now(UTC)).later == (first,)
    assert certificate.read_certificates(lake.records) == [], "there is nothing to prove yet"
    second = ask(lake, HIM)

    def broken(*_: object, **__: object) -> None:
        raise SluiceError("a view does not follow")

    with hours_later() as patch, pytest.raises(FlowsFailed) as failed:
        patch.setattr(propagation, "propagate_deletions", broken)
        erasure_jobs.carry_out_due_erasures(lake.workspace())
    assert set(failed.value.errors) == {"propagation"}
    assert (state(lake, first), state(lake, second)) == (request_events.CERTIFIED, request_events.RECEIVED)
    assert "PASS" in next(report.notes[0] for report in failed.value.reports if report.flow == f"erasure_{first}")

    # Asked for by its id it is looked at alone; a file that came meanwhile is found, and the run fails.
    erasure_jobs.carry_out_due_erasures(lake.workspace())
    assert state(lake, second) == request_events.LOGICALLY
    (lake.settings.landing / "house" / "notes" / "note.txt").write_text(HIM)
    with hours_later(), pytest.raises(FlowsFailed) as found:
        erasure_jobs.carry_out_due_erasures(lake.workspace(), [second])
    assert "found the person" in str(found.value.errors[f"erasure_{second}"]) and HIM not in str(found.value.errors)
    assert state(lake, second) == request_events.FAILED
    (lake.settings.landing / "house" / "notes" / "note.txt").unlink()
    with hours_later():
        erasure_jobs.carry_out_due_erasures(lake.workspace(), [second])
    assert state(lake, second) == request_events.CERTIFIED
