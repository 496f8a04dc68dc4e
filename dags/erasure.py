"""Erases who asked for it, from all pipelines, daily and when somebody triggers it."""

from orchestration.erasure.dag import erasure_dag

dag = erasure_dag()
