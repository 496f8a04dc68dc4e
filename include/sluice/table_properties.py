"""The properties that Sluice gives its Delta tables, by name."""

from __future__ import annotations

RETENTION = "delta.deletedFileRetentionDuration"
"""How long removed files stay: how far time travel reaches, and when an erased person's bytes go."""

STATISTICS = "delta.dataSkippingStatsColumns"
"""The columns of which minima and maxima get into the log."""

LOG_RETENTION = "delta.logRetentionDuration"

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
"""After how many commits the log gets a checkpoint."""

CONSTRAINT = "delta.constraints."
"""`delta.constraints.<name>` holds the condition of a CHECK, which Delta enforces at every write."""

CHECKS = "sluice.checks"
"""Which of a table's constraints come from the declaration, by comma."""

INSTANTS = "sluice.instants"
"""How a table's files hold instants, once that is known of all of them: MICROSECONDS. See sluice.upkeep."""

MICROSECONDS = "microseconds"

WALKED_AT, REMOVED_UNTIL = "sluiceWalkedAt", "sluiceRemovedUntil"
"""No properties: what the last commit of a VACUUM says of itself, in milliseconds since 1970. When the table's folder was walked last; and
until when files were removed from the table that are gone from the disk now."""
