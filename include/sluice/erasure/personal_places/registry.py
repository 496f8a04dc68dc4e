"""The one list of places where personal data can be, in the order in which they are erased.

A new place is one entry here, with the function that erases it (in `sluice.erasure.steps`), the one that plants the canary there
(`planting`), the one that claims its files (`claims`), and what the scan must find of it. A place unlike the others has all of its
functions in one module of `steps`, each named here as a `NamedFunction`.

The scan itself walks roots and never reads this list. Whatever it meets that no entry claims makes a certificate INCONCLUSIVE, so a
place that is missing here does not go unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator

from sluice.erasure.personal_places import claims, planting
from sluice.erasure.personal_places.place import (
    LONG,
    SHORT,
    TEXT,
    ControlFinding,
    ControlStore,
    PersonalPlace,
)
from sluice.erasure.personal_places.planting import COLUMN
from sluice.named_functions import NamedFunction

_TABLE = ControlStore(
    "table",
    "table",
    planting.plant_delta_table,
    NamedFunction("sluice.erasure.steps.canaries:erase_canary_rows"),
    (
        ControlFinding("change feed", r"_change_data/", "parquet"),
        ControlFinding("table", r"[^/]*\.parquet\Z", "parquet"),
        ControlFinding("table, whole number", r"[^/]*\.parquet\Z", "parquet", SHORT, "number"),
        ControlFinding("table, short text", r"[^/]*\.parquet\Z", "parquet", SHORT, "raw"),
    ),
    column=COLUMN,
)
_VECTORS = ControlStore(
    "vectors",
    "table",
    planting.plant_vector_table,
    NamedFunction("sluice.erasure.steps.canaries:erase_canary_rows"),
    (ControlFinding("deletion vectors", r"[^/]*\.parquet\Z", "parquet"),),
    column=COLUMN,
    prepare=planting.enable_deletion_vectors,
)
_QUARANTINE = ControlStore(
    "quarantine",
    "quarantine",
    planting.plant_quarantine_table,
    NamedFunction("sluice.erasure.steps.canaries:erase_canary_rows"),
    (
        ControlFinding("quarantine", r"[^/]*\.parquet\Z", "parquet"),
        ControlFinding("quarantine, short, in a record", r"[^/]*\.parquet\Z", "parquet", SHORT),
    ),
    column="_subject",
)
_STATE = ControlStore(
    "state",
    "state",
    planting.plant_stream_state,
    NamedFunction("sluice.erasure.steps.canaries:remove_canary_state"),
    (
        ControlFinding("state, lz4-java", r".*\.delta\Z", "spark blocks"),
        ControlFinding("state, number as bytes", r".*\.delta\Z", "spark blocks", LONG, "int64"),
        ControlFinding("state, RocksDB table", r".*\.sst\Z", "rocksdb table"),
        ControlFinding("state, RocksDB rows, short number", r".*\.sst\Z", "state rows", SHORT, "number"),
        ControlFinding("state, RocksDB log", r".*/\d+\.log\Z", "rocksdb log"),
        ControlFinding("state, zip", r".*\.zip\Z", "rocksdb log"),
    ),
)
_LANDED = ControlStore(
    "landing",
    "landing",
    planting.plant_landed_files,
    NamedFunction("sluice.erasure.steps.canaries:rewrite_canary_files"),
    (
        ControlFinding("landing file, JSON", r".*\.jsonl\Z", "json"),
        ControlFinding("landing file, JSON, short", r".*\.jsonl\Z", "json", SHORT),
        ControlFinding("landing file, CSV", r".*\.csv\Z", "csv"),
        ControlFinding("landing file, CSV, short", r".*\.csv\Z", "csv", SHORT),
    ),
    column=COLUMN,
)
_ARCHIVED = ControlStore(
    "archive",
    "archive",
    planting.plant_archived_files,
    NamedFunction("sluice.erasure.steps.canaries:rewrite_canary_files"),
    (
        ControlFinding("archive, gzip", r".*\.gz\Z", "json"),
        ControlFinding("archive, bzip2", r".*\.bz2\Z", "json"),
        ControlFinding("archive, zstd", r".*\.zst\Z", "json"),
    ),
    column=COLUMN,
)
_LEFT_OVER = ControlStore(
    "temporary",
    "temporary",
    planting.plant_leftover_files,
    NamedFunction("sluice.erasure.steps.canaries:sweep_canary_files"),
    (
        ControlFinding("Delta checkpoint's statistics", r"checkpoint", "parquet"),
        ControlFinding("Delta checkpoint's statistics, short", r"checkpoint", "parquet", SHORT),
        ControlFinding("log of a commit", r"\.0+1\.json", "json"),
        ControlFinding("Parquet metadata", r"checkpoint", "parquet metadata"),
        ControlFinding("Parquet dictionary, an entry of no row", r"dictionary", "parquet dictionary"),
        ControlFinding("gzip in a cell", r"cell", "text"),
        ControlFinding("ORC", r"orc", "orc"),
        ControlFinding("Arrow", r"arrow", "arrow"),
        ControlFinding("SQLite", r"sqlite", "sqlite"),
        ControlFinding("SQLite, short number", r"sqlite", "sqlite", SHORT, "number"),
        ControlFinding("SQLite, free pages", r"free", "raw bytes"),
        ControlFinding("pickle", r"pickle", "raw bytes"),
        ControlFinding("event log, zstd", r"events", "json"),
        ControlFinding("text log", r"text", "text"),
        ControlFinding("lz4 frame", r"lz4", "text"),
        ControlFinding("snappy, framed", r"framed", "text"),
        ControlFinding("snappy, raw", r"raw", "text"),
        ControlFinding("snappy, xerial", r"xerial", "text"),
        ControlFinding("xz", r"xz", "text"),
        ControlFinding("deflate", r"deflate", "text"),
        ControlFinding("tar", r"tar", "text"),
        ControlFinding("UTF-16 text", r"utf-16", "utf-16"),
        ControlFinding("UTF-16 text, short", r"utf-16", "utf-16", SHORT),
        ControlFinding("base64 text", r"base64", "text", TEXT, "base64"),
        ControlFinding("JSON, a letter escaped", r"escaped", "unescaped"),
        ControlFinding("base64 in lines", r"wrapped", "joined base64", TEXT, "base64"),
        ControlFinding("hash without a key", r"hash", "text", TEXT, "sha256"),
        ControlFinding("gzip within zip", r"nested", "text"),
        ControlFinding("name of a file", r"", "names"),
    ),
)

PERSONAL_PLACES: tuple[PersonalPlace, ...] = (
    PersonalPlace(
        "suppress",
        "the suppression list first, so that nothing lets the person in again: no delivery, replay, refresh, restore or late row",
        NamedFunction("sluice.erasure.propagation:suppress_request_subjects"),
    ),
    PersonalPlace(
        "flows",
        "streams with state that read of such people start over",
        NamedFunction("sluice.erasure.steps.flows:reset_stateful_streams"),
    ),
    PersonalPlace(
        "anonymise",
        "if a table keeps the facts, the person's rows in bronze lose subject and personal columns, and the table is folded again from them",
        NamedFunction("sluice.erasure.emptied_cells:anonymise_kept_facts"),
    ),
    PersonalPlace(
        "other_cells",
        "cells of others' records that hold the person become NULL in bronze, and the tables made from it are folded again",
        NamedFunction("sluice.erasure.emptied_cells:empty_other_subject_cells"),
    ),
    PersonalPlace(
        "tables",
        "rows of bronze, silver, change logs and restricted tables go by merge, table by table; where other people may have the same key, "
        "the table is folded again",
        NamedFunction("sluice.erasure.steps.shared_keys:erase_table_rows"),
        controls=(
            _TABLE,
            _VECTORS,
        ),
        claims=claims.claim_tables,
        counts_rows=True,
    ),
    PersonalPlace(
        "late",
        "rows that came too late for streams go",
        NamedFunction("sluice.erasure.steps.rows:erase_late_rows"),
        counts_rows=True,
    ),
    PersonalPlace(
        "quarantine",
        "quarantined rows go if their person is known",
        NamedFunction("sluice.erasure.steps.rows:erase_quarantined_rows"),
        controls=(_QUARANTINE,),
        counts_rows=True,
    ),
    PersonalPlace(
        "unattributed",
        "quarantined rows and files without a known person go if they name the person",
        NamedFunction("sluice.erasure.steps.naming:erase_unattributed_quarantine"),
    ),
    PersonalPlace(
        "views",
        "every flow above bronze runs to its end. If a table then fails an expectation, the erasure continues",
        NamedFunction("sluice.erasure.steps.flows:run_following_flows"),
    ),
    PersonalPlace(
        "releases",
        "rows leave the released copies, or a copy is withdrawn",
        NamedFunction("sluice.erasure.steps.rows:erase_from_releases"),
        claims=claims.claim_releases,
    ),
    PersonalPlace(
        "purge",
        "files that have rows marked as deleted are rewritten",
        NamedFunction("sluice.erasure.steps.purge:purge_deletion_vectors"),
    ),
    PersonalPlace(
        "state",
        "abandoned checkpoints are removed",
        NamedFunction("sluice.erasure.steps.sweep:remove_abandoned_checkpoints"),
        controls=(_STATE,),
        claims=claims.claim_checkpoints,
    ),
    PersonalPlace(
        "landing",
        "landed and archived files are rewritten without the person's records",
        NamedFunction("sluice.erasure.steps.landing:rewrite_landed_files"),
        controls=(
            _LANDED,
            _ARCHIVED,
        ),
        claims=claims.claim_landed_files,
    ),
    PersonalPlace(
        "sweep",
        "leftover files of killed commits, writers and sessions are removed",
        NamedFunction("sluice.erasure.steps.sweep:sweep_leftover_files"),
        controls=(_LEFT_OVER,),
    ),
    PersonalPlace(
        "records",
        "Sluice's own records hold ids, counts, names of declarations and keyed hashes only",
        claims=claims.claim_own_records,
    ),
    PersonalPlace(
        "topics",
        "Kafka keeps records until its retention",
        exceptions=claims.list_topics,
    ),
    PersonalPlace(
        "truth",
        "made-up deliveries have their truth beside them, which is removed by hand",
        exceptions=claims.list_truth,
    ),
    PersonalPlace(
        "executors",
        "the disks of executors of a cluster",
        exceptions=claims.list_executor_disks,
    ),
    PersonalPlace(
        "airflow",
        "Airflow's database and logs hold ids only; those of the local one are scanned",
        exceptions=claims.list_airflow_elsewhere,
    ),
    PersonalPlace(
        "sessions",
        "local files of running Spark sessions are removed at their end",
        exceptions=claims.list_running_sessions,
    ),
    PersonalPlace(
        "backups",
        "backups, and what a disk or an object store keeps",
        exceptions=claims.list_backups,
    ),
)
"""An erased person leaves these places in this order. The bytes of former versions go after their retention: see `physical`."""


def list_control_stores() -> Iterator[ControlStore]:
    """Yields every store of a canary."""
    for place in PERSONAL_PLACES:
        yield from place.controls
