"""Every action in a table's log, in whichever file: commits, compacted commits, checksums with their list of files, checkpoints, leftovers.

Reads without a JVM and without an engine that replays the log, because actions that no reader needs any more are still on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.delta_log import LOG, split_commit_lines
from sluice.locations import Location, locate, open_to_read, walk_folders

_ENDS = ("minValues", "maxValues")


@dataclass(frozen=True)
class LogAction:
    """An action in a log file. kind: its name in the log (add, remove, metaData, commitInfo, ...). said: its content.

    ends: for an add, the names of the columns whose lowest or highest value it holds.
    """

    file: str
    kind: str
    said: Mapping[str, Any]
    ends: frozenset[str] = frozenset()


def read_log_actions(path: str) -> Iterator[LogAction]:
    """Yields the actions of a table's log, file by file in the order of names. Raises ValueError, which names the file, if one is unreadable."""
    for file in _list_log_files(locate(path) / LOG):
        try:
            yield from _read_checkpoint_actions(file) if file.suffix == ".parquet" else _read_json_actions(file)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"{LOG}/{file.name} cannot be read ({type(error).__name__})") from None


def find_delta_tables(root: Location) -> Iterator[Location]:
    """Yields the tables below a folder, declared or not: every folder that has a log."""
    yield from sorted(folder.parent for folder, _, _ in walk_folders(root) if folder.name == LOG)


def _list_log_files(log: Location) -> list[Location]:
    """Lists the files of a log, without Hadoop's checksums, which hold only numbers, and without the pointer to the last checkpoint."""
    found = [file for file in (*log.glob("*"), *log.glob("_sidecars/*")) if file.is_file()]
    return sorted(file for file in found if not (file.name.startswith(".") and file.suffix == ".crc") and file.name[0] != "_")


def _read_json_actions(file: Location) -> Iterator[LogAction]:
    for line in split_commit_lines(file.read_bytes()):
        said = json.loads(line)
        if file.suffix == ".crc":  # one object: the table as of a version, with all of its files if they are few
            said = {"metaData": said.get("metadata"), "files": said.get("allFiles")}
        for kind, of_kind in said.items():
            for one in of_kind or [] if kind == "files" else [of_kind]:
                if isinstance(one, dict):
                    yield LogAction(
                        file.name, "add" if kind == "files" else kind, one, _columns_with_text_statistics(one.get("stats"))
                    )


def _read_checkpoint_actions(file: Location) -> Iterator[LogAction]:
    with open_to_read(file) as opened:
        for batch in pq.ParquetFile(opened).iter_batches(batch_size=4096):
            for kind in (name for name in batch.schema.names if name in ("add", "remove", "metaData", "domainMetadata")):
                rows = batch.column(kind)
                rows = rows.filter(pc.is_valid(rows))
                parsed = _columns_with_parsed_statistics(rows) if kind == "add" and len(rows) else frozenset()
                for one in _drop_parsed_statistics(rows).to_pylist():
                    said = {
                        name: dict(value) if isinstance(value, list) and name in _MAPS else value for name, value in one.items()
                    }
                    yield LogAction(file.name, kind, said, parsed | _columns_with_text_statistics(said.get("stats")))


_MAPS = ("partitionValues", "configuration", "tags")


def _drop_parsed_statistics(rows: Any) -> Any:
    """Leaves out statistics that are stored as values: only their presence matters here, and they have the table's own types."""
    kept = [field.name for field in rows.type if not field.name.endswith("_parsed")]
    return pa.StructArray.from_arrays([pc.struct_field(rows, name) for name in kept], names=kept) if len(rows) else rows


def _columns_with_parsed_statistics(rows: Any) -> frozenset[str]:
    """Returns the columns that have statistics stored as values."""
    names = [field.name for field in rows.type]
    if "stats_parsed" not in names:
        return frozenset()
    parsed, found = rows.type.field("stats_parsed").type, set()
    for end in (name for name in _ENDS if name in [field.name for field in parsed]):
        for field in parsed.field(end).type:
            column = pc.struct_field(rows, ["stats_parsed", end, field.name])
            if column.null_count < len(column):
                found.add(field.name)
    return frozenset(found)


def _columns_with_text_statistics(stats: Any) -> frozenset[str]:
    """Returns the columns whose lowest or highest value is in a file's statistics, which are a JSON text."""
    said = json.loads(stats) if isinstance(stats, str) and stats else {}
    return frozenset(name for end in _ENDS for name, value in (said.get(end) or {}).items() if value is not None)
