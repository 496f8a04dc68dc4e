"""The names that a pipeline file imports. Loads no pyspark: `F` and `Window` load it at their first use."""

from sluice.declare.cdc.auto_cdc import auto_cdc, auto_cdc_from_snapshot
from sluice.declare.datasets.computed import role_view, temporary_view, view
from sluice.declare.datasets.materialized_views import TimeReach, materialized_view
from sluice.declare.datasets.tables import table
from sluice.declare.datasets.windowed import Watermark, windowed
from sluice.declare.erasure.identifiers import Link, erasure_requests
from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.declare.lazy_spark import F, Window
from sluice.declare.pipeline import Landed, Pipeline, deliver_file
from sluice.declare.privacy import mask, treat
from sluice.declare.quality.expectations import (
    expect,
    expect_all,
    expect_all_or_drop,
    expect_all_or_fail,
    expect_all_or_quarantine,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
)
from sluice.declare.quality.rules import Rules
from sluice.declare.quality.table_expectations import expect_fresh, expect_references, expect_row_count, expect_unique
from sluice.declare.table_layout import Layout
from sluice.errors import UsageError

__all__ = [
    "F",
    "KafkaSource",
    "Landed",
    "Layout",
    "Link",
    "Pipeline",
    "Rules",
    "Source",
    "TimeReach",
    "UsageError",
    "Watermark",
    "Window",
    "auto_cdc",
    "auto_cdc_from_snapshot",
    "deliver_file",
    "erasure_requests",
    "expect",
    "expect_all",
    "expect_all_or_drop",
    "expect_all_or_fail",
    "expect_all_or_quarantine",
    "expect_fresh",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "expect_references",
    "expect_row_count",
    "expect_unique",
    "mask",
    "materialized_view",
    "role_view",
    "table",
    "temporary_view",
    "treat",
    "view",
    "windowed",
]
