"""A job that reports from where its driver and its executors import Sluice: one JSON line, and a file if an argument names one."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import sluice
from pipelines.gym.pipeline import PIPELINE


def locate_code(_: Iterator[int]) -> Iterator[tuple[str, str, str, list[str], list[str]]]:
    """Runs on an executor."""
    import pipelines.gym.silver  # reads a file beside itself
    import sluice as there
    from pipelines.gym.pipeline import PIPELINE as known

    assert pipelines.gym.silver.RULES.expectations
    yield str(there.__file__), str(Path.cwd()), known.name, sys.path, sorted(os.environ)


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    executors = spark.sparkContext.parallelize(range(2), 2).mapPartitions(locate_code).collect()
    told = {"driver": sluice.__file__, "pipeline": PIPELINE.name, "host": socket.gethostname(), "executors": executors}
    told |= {"master": spark.sparkContext.master, "executor_memory": spark.conf.get("spark.executor.memory")}
    print(json.dumps(told))
    for file in sys.argv[1:]:
        Path(file).write_text(json.dumps(told))
    spark.stop()
