"""Lists the jobs that Spark ran."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import SparkSession


def count_jobs_by_line(spark: SparkSession) -> Counter[str]:
    """How many Spark jobs there were so far, by the line of code that Spark names them after."""
    listed = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return Counter(str(listed.apply(position).name()) for position in range(listed.size()))
