"""The gym pipeline, daily. It is declared in include/pipelines/gym; here it only becomes a DAG."""

from orchestration.medallion import medallion_dag
from pipelines.gym.pipeline import PIPELINE

dag = medallion_dag(PIPELINE)
