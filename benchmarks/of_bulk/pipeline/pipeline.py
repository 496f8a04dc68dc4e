"""The pipeline `bulk`. `benchmarks/bulk.py` copies this folder as pipelines/bulk into a checkout that it makes."""

from __future__ import annotations

from sluice.declare import Pipeline

PIPELINE = Pipeline(
    name="bulk",
    description="A large first delivery of visits to gyms.",
    owner="sluice",
    layers=("pipelines.bulk.bronze", "pipelines.bulk.silver", "pipelines.bulk.gold"),
)
