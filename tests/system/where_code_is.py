"""A job that tells from where its driver and its executors import Sluice: one JSON line."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import sluice
from pipelines.gym.pipeline import PIPELINE


def place(_: Iterator[int]) -> Iterator[tuple[str, str, str]]:
    """Runs on an executor."""
    import sluice as there
    from pipelines.gym.pipeline import PIPELINE as known

    yield str(there.__file__), str(Path.cwd()), known.name


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    executors = spark.sparkContext.parallelize(range(2), 2).mapPartitions(place).collect()
    told = {"driver": sluice.__file__, "pipeline": PIPELINE.name, "host": socket.gethostname(), "executors": executors}
    print(json.dumps(told | {"master": spark.sparkContext.master, "executor_memory": spark.conf.get("spark.executor.memory")}))
    spark.stop()
