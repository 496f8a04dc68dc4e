"""What Airflow needs to know of the pipeline `italy`."""

from __future__ import annotations

from sluice.declare import Pipeline

PIPELINE = Pipeline(
    name="italy",
    description="COVID-19 figures of the Italian regions, as delivered by the Protezione Civile.",
    owner="sluice",
    schedule="30 17 * * *",
    publishes=("national_day", "region_week"),
    layers=("pipelines.italy.bronze", "pipelines.italy.silver", "pipelines.italy.gold"),
    maker="pipelines.italy.maker",
)
