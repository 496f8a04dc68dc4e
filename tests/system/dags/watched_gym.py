"""The gym with thresholds that every run goes over, and no patience."""

from dataclasses import replace
from datetime import timedelta

from orchestration.medallion import medallion_dag
from pipelines.gym.pipeline import PIPELINE

dag = medallion_dag(
    replace(PIPELINE, deadline="1 second", freshness="1 second", alert_when={"device_day.plausible_heart_rate": 6})
)
for one in dag.tasks:
    one.retry_delay = timedelta(seconds=1)
