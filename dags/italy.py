"""The italy pipeline, daily. It is declared in include/pipelines/italy; this file makes its DAG."""

from orchestration.medallion import medallion_dag
from pipelines.italy.pipeline import PIPELINE

dag = medallion_dag(PIPELINE)
