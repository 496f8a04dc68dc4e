"""The pipeline `tpch`. `benchmarks/tpch.py` copies this folder as pipelines/tpch into a checkout that it makes."""

from __future__ import annotations

from sluice.declare import Pipeline

PIPELINE = Pipeline(
    name="tpch",
    description="The tables of TPC-H, kept from feeds of changes, and its 22 queries.",
    owner="sluice",
    layers=("pipelines.tpch.bronze", "pipelines.tpch.silver", "pipelines.tpch.gold"),
)
