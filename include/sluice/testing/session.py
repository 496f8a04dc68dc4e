"""The Spark session of unit tests: one per process, configured like the jobs'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.session import start_spark_session
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}


def session() -> SparkSession:
    """The process's session. The first call takes seconds to start it. As a fixture: `pytest.fixture(scope="session")(session)`.

    It is configured like the jobs', so that SQL means the same, apart from settings that make small data faster.
    """
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or start_spark_session(Settings.current(), "unit tests", _SMALL)
