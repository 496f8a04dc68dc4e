"""Erases people who asked for it, from all pipelines, daily and when triggered."""

from orchestration.erasure.dag import erasure_dag

dag = erasure_dag()
