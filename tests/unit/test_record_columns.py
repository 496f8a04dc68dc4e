"""The columns of Sluice's record tables: what lakes have stays as it is, and a new one is one more field."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from sluice import flow_counts
from sluice.erasure import erasure_ledger
from sluice.ingest import delivery_tables
from sluice.lake.flow_report import FlowReport
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import suppression_list
from sluice.record_columns import build_record_ddl, list_object_columns, make_record_schema
from sluice.runs import run_ledger, summary
from sluice.settings import Settings

TEXT, NUMBER, AT = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
KEPT: dict[str, tuple[pa.Schema, str, dict[pa.DataType, str]]] = {
    "deliveries": (
        delivery_tables.DELIVERIES,
        "delivery source file event",
        {
            NUMBER: "delivery size device",
            TEXT: "source file event sha256 run reason etag",
            AT: "modified_at discovered_at",
        },
    ),
    "outcomes": (
        delivery_tables.OUTCOMES,
        "delivery source file state",
        {
            NUMBER: "delivery rows rescued quarantined suppressed batch read discarded entry",
            TEXT: "source file state reason header sha256 run held_back",
            AT: "modified_at recorded_at",
        },
    ),
    "erasure": (
        erasure_ledger.SCHEMA,
        "request table step at",
        {TEXT: "request table step", AT: "at", NUMBER: "rows files entry"},
    ),
    "runs": (
        run_ledger.RUNS,
        "",
        {
            TEXT: "run pipeline stage mode flow state rules quarantine_reasons note airflow_run fingerprint null_rules rules_version "
            "table_rules recomputed written_by verified_part steps stage_steps table_files spark decision stream questions failure",
            NUMBER: "version_before version_after batches deliveries rows_in rows_out inserted updated deleted quarantined dropped "
            "expired suppressed rescued late unfollowed state_rows state_bytes entry",
            pa.float64(): "seconds stage_cpu_seconds",
            AT: "started_at ended_at interval_start interval_end",
        },
    ),
}


@pytest.mark.parametrize("table", KEPT)
def test_the_columns_that_lakes_have_stay_as_they_are_and_a_new_one_may_be_null(table: str) -> None:
    schema, required, kinds = KEPT[table]
    found = {one.name: one.type for one in schema}
    kept = {name: kind for kind, names in kinds.items() for name in names.split()}
    assert {name: found[name] for name in kept} == kept
    assert {one.name for one in schema if not one.nullable} == {*required.split()}


def test_the_suppression_list_has_the_columns_that_lakes_have() -> None:
    assert suppression_list.SCHEMA.startswith(
        "domain STRING, pseudonym STRING, request STRING, since TIMESTAMP, "
        "valid_from TIMESTAMP, valid_to TIMESTAMP, known_until TIMESTAMP, lifted_at TIMESTAMP, lifted_delivery BIGINT"
    )


def test_every_finding_of_a_flow_is_in_its_summary_and_in_the_run_ledger(settings: Settings) -> None:
    report = FlowReport("sale", "silver", version_before=1, decision="no", steps={"writing": 1.5}, spark={"jobs": 2})
    flow = summary.summarize_flow(report)
    assert {*flow} == {*flow_counts.FLOW_FINDINGS, "layer", "note"}
    records = PipelineRecords(settings, "shop")
    run_ledger.append_run_rows(records, [flow])
    (row,) = run_ledger.read_run_ledger(records)
    assert {name: row[name] for name in flow_counts.FLOW_FINDINGS} == {name: flow[name] for name in flow_counts.FLOW_FINDINGS}


@dataclass
class Noted:
    name: str
    seconds: float
    at: datetime | None
    rules: Counter[str] = field(default_factory=Counter)
    found: dict[str, Any] = field(default_factory=dict)
    rows: int = 0


@dataclass
class Listed:
    name: str
    at: datetime | None
    rows: int = 0


def test_a_field_is_a_column_that_may_be_null_if_it_may_be_none_or_has_a_default() -> None:
    assert make_record_schema(Listed) == pa.schema([
        pa.field("name", TEXT, nullable=False),
        pa.field("at", AT),
        pa.field("rows", NUMBER),
    ])
    assert build_record_ddl(Listed) == "name STRING, at TIMESTAMP, rows BIGINT"
    assert make_record_schema(Listed, Noted, all_nullable=True).names == [
        "name",
        "at",
        "rows",
        "name",
        "seconds",
        "at",
        "rules",
        "found",
        "rows",
    ]


def test_a_mapping_is_the_text_of_a_json_object() -> None:
    assert list_object_columns(Listed, Noted) == ("rules", "found")
    assert [make_record_schema(Noted).field(name).type for name in ("rules", "found")] == [TEXT, TEXT]
