"""The gym pipeline, daily. It is declared in include/pipelines/gym; this file makes its DAG."""

from orchestration.medallion import medallion_dag
from pipelines.gym.pipeline import PIPELINE

dag = medallion_dag(PIPELINE)
