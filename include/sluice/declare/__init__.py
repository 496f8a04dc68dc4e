"""What a pipeline file imports. Loads no pyspark: `F` and `Window` are loaded at their first use."""

from sluice.declare import mask, treat
from sluice.declare.auto_cdc import auto_cdc, auto_cdc_from_snapshot
from sluice.declare.computed import view
from sluice.declare.decorators import materialized_view, table, temporary_view
from sluice.declare.expectations import (
    expect,
    expect_all,
    expect_all_or_drop,
    expect_all_or_fail,
    expect_all_or_quarantine,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
)
from sluice.declare.kafka import KafkaSource
from sluice.declare.lazy import F, Window
from sluice.declare.links import Link, erasure_requests
from sluice.declare.pipeline import Landed, Pipeline
from sluice.declare.role_views import role_view
from sluice.declare.rules import Rules
from sluice.declare.source import Source
from sluice.declare.time_reach import TimeReach
from sluice.declare.whole_table import expect_fresh, expect_references, expect_row_count, expect_unique
from sluice.declare.windowed import Watermark, windowed
from sluice.errors import UsageError

__all__ = [
    "F",
    "KafkaSource",
    "Landed",
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
