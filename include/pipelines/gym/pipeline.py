"""What Airflow needs to know of the pipeline `gym`."""

from __future__ import annotations

from sluice.declare import Pipeline

PIPELINE = Pipeline(
    name="gym",
    description="Heart rates, workouts and visits of a gym's members.",
    owner="sluice",
    publishes=("device_day", "workout_summary", "gym_stats"),
    layers=("pipelines.gym.bronze", "pipelines.gym.silver", "pipelines.gym.gold"),
    maker="pipelines.gym.maker",
    roles={"coach": "whom they train; no surname, no birthday"},
)
