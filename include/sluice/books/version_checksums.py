"""The checksum file of a table's version, beside its commit: what Delta on Spark need not compute then.

Spark writes one with each commit, delta-rs writes none. Without it each stream over a table begins with two Spark jobs that look in the
whole log for its schema. The file is part of Delta's protocol (PROTOCOL.md, "Version Checksum File"); a reader does without where it is
missing or cut. One of a version that is not there is an error to delta-rs: so the commit is on the disk before its checksum is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from sluice.delta_log import LOG, open_checked_table
from sluice.durable_files import flush_file_and_name, write_json_durably


def write_version_checksum(path: str) -> None:
    """Write the checksum file of a table's latest version, which delta-rs has committed. Call it under the lease. Raises DamagedLog."""
    table = open_checked_table(path)
    commit = Path(path) / LOG / f"{table.version():020d}.json"
    flush_file_and_name(commit)
    write_json_durably(commit.with_suffix(".crc"), _describe_version(table))
    # delta-rs removes commits that have outlived the log's retention, and not what belongs to them.
    for checksum in commit.parent.glob("*.crc"):
        if checksum.stem.isdecimal() and not checksum.with_suffix(".json").exists():
            checksum.unlink(missing_ok=True)


def _describe_version(table: DeltaTable) -> dict[str, Any]:
    """What the checksum file of the table's version holds: counts, and the actions that say what the table is."""
    metadata, protocol = table.metadata(), table.protocol()
    sizes = pa.chunked_array(table.get_add_actions()["size_bytes"]).to_pylist()
    said = {
        "id": str(metadata.id),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(json.loads(table.schema().to_json()), separators=(",", ":")),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    return {
        "tableSizeBytes": sum(sizes),
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {name: value for name, value in said.items() if value is not None},
        "protocol": {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            **{name: list(listed) for name, listed in features.items() if listed is not None},
        },
    }
