"""The Spark session of unit tests: one a process, with the configuration of the jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.session import start_spark_session
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}


def session() -> SparkSession:
    """The process's session; the first call starts it, which takes seconds. As a fixture: `pytest.fixture(scope="session")(session)`.

    It has the configuration of the jobs, so that SQL means the same, but for what makes a few rows faster.
    """
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or start_spark_session(Settings.current(), "unit tests", _SMALL)
