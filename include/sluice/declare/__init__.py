"""What a pipeline file imports. Loads no pyspark: `F` and `Window` are loaded at their first use."""

from sluice.declare.expectations import expect, expect_or_drop, expect_or_fail, expect_or_quarantine
from sluice.declare.kafka import KafkaSource
from sluice.declare.lazy import F, Window
from sluice.declare.pipeline import Landed, Pipeline
from sluice.declare.source import Source
from sluice.declare.tables import materialized_view, table
from sluice.errors import UsageError

__all__ = [
    "F",
    "KafkaSource",
    "Landed",
    "Pipeline",
    "Source",
    "UsageError",
    "Window",
    "expect",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "materialized_view",
    "table",
]
