"""Spark as the command line starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_command_session(settings: Settings, name: str) -> SparkSession:
    """A session with a catalog and settings of its own in this process's Spark."""
    from sluice import session as sessions

    return sessions.start_spark_session(settings, name).newSession()
