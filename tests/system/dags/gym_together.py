"""The gym with one task for all layers: five Spark jobs a run in place of seven."""

from dataclasses import replace

from orchestration.medallion import medallion_dag
from pipelines.gym.pipeline import PIPELINE

dag = medallion_dag(replace(PIPELINE, stages="together"))
