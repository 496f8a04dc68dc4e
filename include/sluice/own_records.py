"""Sluice's own records of a pipeline, each with its one name below `_sluice` in the pipeline's folder, of the lake or of restricted tables.

The proof of an erasure takes what has another name for something that nobody declared, and its certificate is INCONCLUSIVE. So a new
record is one line here, and who writes it takes the name from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OWN_FOLDER = "_sluice"
"""The folder of these records, in a pipeline's folder."""

RecordKind = Literal["file", "folder", "table"]
"""What lies at a record's name."""


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """One of Sluice's own records.

    by_table: a folder with an entry for each table or flow, which may hold people. Each entry is for its declaration to claim: no
    erasure reaches that of a declaration that is no more. Any other record is claimed as a whole, by its name alone.
    """

    name: str
    kind: RecordKind
    by_table: bool = False


DELIVERIES = OwnRecord("deliveries", "table")
OUTCOMES = OwnRecord("outcomes", "table")
RUNS = OwnRecord("runs", "table")
ERASURE = OwnRecord("erasure", "table")
"""The erasure ledger: what each request has removed where."""
SUPPRESSION = OwnRecord("suppression", "table")

CHANGES = OwnRecord("changes", "folder", by_table=True)
SNAPSHOTS = OwnRecord("snapshots", "folder", by_table=True)
TRUNCATES = OwnRecord("truncates", "folder", by_table=True)
"""The logs of targets of auto_cdc: changes, whole extracts, and when all rows were gone."""
CHECKPOINTS = OwnRecord("checkpoints", "folder", by_table=True)

SCHEMAS = OwnRecord("schemas", "folder")
"""The schema logs. They have an entry for each bronze table, but names and types of columns alone."""
IDLE = OwnRecord("idle", "folder")
"""The heartbeats of streams. They have an entry for each stream, but versions and instants alone."""

STAGING = OwnRecord("staging", "folder")
"""Records that are read and not written yet."""
FULL_LISTINGS = OwnRecord("full_listings", "folder")
"""When sources that are listed in part had their last full listing."""
READMISSIONS = OwnRecord("readmissions", "folder")
REWRITING = OwnRecord("rewriting", "folder")
"""The journals of entries that leave a quarantine, and of landed files that are being rewritten."""
AGING = OwnRecord("aging", "folder")
ERASED_ROWS = OwnRecord("erased_rows", "folder")
"""The journals of rows that go since they are too old, and since they are of people who go."""
REMOVALS_BY_AGE = OwnRecord("removals_by_age", "folder")
ERASURE_REQUESTS = OwnRecord("erasure_requests", "folder")
CANARY = OwnRecord("canary", "folder")
CERTIFICATES = OwnRecord("certificates", "folder")
SET_ASIDE = OwnRecord("set_aside", "folder")
"""Damaged files of tables' logs."""
SHALLOW_CLONES = OwnRecord("shallow_clones", "folder")
CLONE = OwnRecord("clone.json", "file")
"""What a lake that is a clone was made from."""

STOP_REQUESTS = OwnRecord("stop_requests", "folder")
FOLLOWED_JOBS = OwnRecord("followed_jobs", "folder")
"""Where drivers that a cluster started write that they live, and how they ended."""
LINEAGE_EVENTS = OwnRecord("openlineage", "folder")
"""OpenLineage events that go to no server."""
COLUMN_LINEAGE = OwnRecord("column_lineage.json", "file")
KEPT_RUNNING = OwnRecord("kept_running.json", "file")
QUIET = OwnRecord("quiet.json", "file")
LAKE_DESCRIPTION = OwnRecord("lake.json", "file")

LEASE_DESCRIPTION = OwnRecord("lease.json", "file")
JVM_LOCK = OwnRecord("lease.lock", "file")
DRIVER_LOCK = OwnRecord("lease.driver.lock", "file")
"""The description of the lease's holder, and the two files whose locks are the lease, for the JVM and for Python."""
LEASE_FILES = (LEASE_DESCRIPTION.name, JVM_LOCK.name, DRIVER_LOCK.name)

OWN_RECORDS = tuple(one for one in list(globals().values()) if isinstance(one, OwnRecord))
"""All of them: what is named above cannot be left out."""
OWN_TABLES = tuple(one for one in OWN_RECORDS if one.kind == "table")


def name_own_record(record: OwnRecord) -> str:
    """The name of a record below the pipeline's folder; of a table, also its name in reports."""
    return f"{OWN_FOLDER}/{record.name}"


def locate_record_beside(path: str, record: OwnRecord) -> str:
    """The path of a record that lies beside the one at this path."""
    return f"{path.rpartition('/')[0]}/{record.name}"
