"""The properties that Sluice gives its Delta tables, by name, and the form of the list of columns with statistics."""

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
"""The epoch of the lease on a store under which a table was taken over from a holder that did not release it."""
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
"""The number of commits between checkpoints of the log."""

CONSTRAINT = "delta.constraints."
"""`delta.constraints.<name>` holds the condition of a CHECK, which Delta enforces at every write."""

CHECKS = "sluice.checks"
"""The constraints of a table that come from its declaration, separated by commas."""

FINGERPRINT = "sluice.fingerprint"
"""The fingerprint of the code that had made all of a table's rows when the property was set."""

PSEUDONYM_KEYS = "sluice.pseudonymKeys"
"""Which keys the pseudonyms of a table were made with, by their fingerprints."""

RESTORED, RESTORED_AT = "sluice.restored", "sluice.restoredAt"
"""To which version a restored table was restored, and when."""

INSTANTS = "sluice.instants"
"""The format of instants in a table's files, once it is known for all of them: MICROSECONDS. See sluice.optimize."""

MICROSECONDS = "microseconds"

WALKED_AT, REMOVED_UNTIL, VACUUMED_VERSION, WAITING_FROM = (
    "sluiceWalkedAt",
    "sluiceRemovedUntil",
    "sluiceVacuumedVersion",
    "sluiceWaitingFrom",
)
"""No properties, but fields of the last commit of a VACUUM. In milliseconds since 1970: when the table's folder was last walked; and the time
up to which removed files are gone from the disk. As versions: the last one that the VACUUM looked at; and the first one that removed a file
which is still there."""

GROUPS_LEFT = "numGroupsLeft"
"""No property: a metric of a commit that wrote some of a table's files anew: how many groups of files of the same decision were left then."""

CHANGE_FEED = "delta.enableChangeDataFeed"
"""Whether a table has a change data feed."""
CHANGE_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""No properties: the columns that Delta adds to the rows of a feed. A table with a feed may have none of these names."""

DELETION_VECTORS = "delta.enableDeletionVectors"
"""Whether deleted rows are only marked and stay in their files."""

TARGET_FILE_SIZE = "delta.targetFileSize"
"""How large files should be, in bytes. delta-rs and other engines use it; Delta on Spark does not know it, so Sluice passes it to OPTIMIZE."""


def format_statistics_columns(columns: Iterable[str]) -> str:
    """The value of STATISTICS for these columns, fields of structs by their path: `id,a.b`.

    Names with letters outside ASCII, such as `größe`, or with signs, are in backquotes: without them Delta does not find the column.
    """
    return ",".join(".".join(map(_quote_unless_plain, column.split("."))) for column in columns)


def parse_statistics_columns(said: str) -> list[str]:
    """The columns that a value of STATISTICS names, whoever wrote it."""
    bare = (_QUOTED_NAME.sub(lambda found: found[1].replace("``", "`"), column.strip()) for column in said.split(","))
    return [column for column in bare if column]


def _quote_unless_plain(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
