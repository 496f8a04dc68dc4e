"""The properties that Sluice gives its Delta tables, by name, and how the columns with statistics are written down."""

from __future__ import annotations

import re
from collections.abc import Iterable

RETENTION = "delta.deletedFileRetentionDuration"
"""How long removed files stay: limits time travel, and decides when an erased person's bytes go."""

STATISTICS = "delta.dataSkippingStatsColumns"
"""The columns whose minima and maxima are in the log."""

_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
_QUOTED_NAME = re.compile(r"`((?:[^`]|``)*)`")

LOG_RETENTION = "delta.logRetentionDuration"

EPOCH = "sluice.epoch"
"""The number of the lease on a store under which a table was taken over from a holder that did not give it up."""
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
"""The number of commits between checkpoints of the log."""

CONSTRAINT = "delta.constraints."
"""`delta.constraints.<name>` holds the condition of a CHECK, which Delta enforces at every write."""

CHECKS = "sluice.checks"
"""The constraints of a table that come from its declaration, separated by commas."""

INSTANTS = "sluice.instants"
"""The format of instants in a table's files, once it is known for all of them: MICROSECONDS. See sluice.upkeep."""

MICROSECONDS = "microseconds"

WALKED_AT, REMOVED_UNTIL = "sluiceWalkedAt", "sluiceRemovedUntil"
"""No properties: what the last commit of a VACUUM says of itself, in milliseconds since 1970. When the table's folder was walked last; and
until when files were removed from the table that are gone from the disk now."""

CHANGE_FEED = "delta.enableChangeDataFeed"
"""Whether a table keeps what its commits changed beside its rows."""

DELETION_VECTORS = "delta.enableDeletionVectors"
"""Whether deleted rows are only marked, and stay in their files."""

TARGET_FILE_SIZE = "delta.targetFileSize"
"""How large files should be, in bytes. delta-rs and other engines go by it; Delta on Spark does not know it, so Sluice tells its OPTIMIZE."""


def format_statistics_columns(columns: Iterable[str]) -> str:
    """The value of STATISTICS for these columns, fields of structs by their path: `id,a.b`.

    Other letters than those of ASCII, as in `größe`, and signs stand in backquotes: Delta does not find the column without.
    """
    return ",".join(".".join(map(_quote_unless_plain, column.split("."))) for column in columns)


def parse_statistics_columns(said: str) -> list[str]:
    """The columns that a value of STATISTICS names, whoever wrote it."""
    bare = (_QUOTED_NAME.sub(lambda found: found[1].replace("``", "`"), column.strip()) for column in said.split(","))
    return [column for column in bare if column]


def _quote_unless_plain(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
