"""Tables by the names they have in SQL, for reading only.

They are registered as views in the session's in-memory catalog. Nothing can be written through a view, and a view can stand for
an earlier version. Making one reads the table's log, so only those are made that a query names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluice.errors import SluiceError
from sluice.lake import log, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def register(session: SparkSession, names: Mapping[str, str], as_of: str | None = None) -> None:
    """Make the tables known to the session by name. names: paths by '<pipeline>.<table>'; as_of: a version, date or instant.

    Raises UsageError where a table has no such version, or as_of is neither.
    """
    for schema in sorted({name.split(".")[0] for name in names}):
        session.sql(f"CREATE SCHEMA IF NOT EXISTS `{schema}`")
    for name, path in sorted(names.items()):
        schema, table = name.split(".")
        session.sql(f"CREATE OR REPLACE VIEW `{schema}`.`{table}` AS {_selecting(name, path, as_of)}")


def version_of(session: SparkSession, name: str, path: str, as_of: str | None) -> DataFrame:
    """A table as a frame. Arguments and errors as of `register`."""
    return session.sql(_selecting(name, path, as_of))


def _selecting(name: str, path: str, as_of: str | None) -> str:
    version = "" if as_of is None else f" VERSION AS OF {_version(name, path, as_of)}"
    return f"SELECT * FROM delta.`{path}`{version}"


def _version(name: str, path: str, as_of: str) -> int:
    """The version of a table that a version number, date or instant means."""
    if log.version(path) is None:
        raise SluiceError(f"Table '{name}' is gone.")
    return versions.meant(name, path, as_of)
