"""Reads the files of a table's log themselves, for what delta-rs does not tell: every action in them, and by which columns the table is clustered.

Without a JVM. The actions come from commits, compacted commits, checksums with their list of files, checkpoints and leftovers, without an
engine that replays the log: those that no reader needs any more are still on the disk. A table that was clustered once (liquid clustering)
keeps that in its protocol. From then on delta-rs does not write it, and Delta refuses ZORDER.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.delta_log import LOG, list_log_versions, split_commit_lines
from sluice.lake import commit_history
from sluice.locations import Location, locate, open_to_read, walk_folders
from sluice.open_tables import open_checked_table

_ENDS = ("minValues", "maxValues")
_MAPS = ("partitionValues", "configuration", "tags")
_CLUSTERING_FEATURE = "clustering"
_CLUSTERING_DOMAIN = "delta.clustering"
_DOMAIN_ACTION = "domainMetadata"


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


def has_clustering_feature(path: str) -> bool:
    """Whether a table is or was clustered. Raises DamagedLog, and TableNotFoundError if there is no table."""
    return _CLUSTERING_FEATURE in (open_checked_table(path).protocol().writer_features or ())


def read_cluster_columns(path: str) -> tuple[str, ...]:
    """Returns the columns by which a table's rows are clustered from now on; none if it is not clustered. Errors: as above.

    The newest entry of the log counts. Delta's protocol lets a checkpoint and the commits after it repeat everything that is valid.
    """
    if not has_clustering_feature(path):
        return ()
    commits, checkpoints = list_log_versions(locate(path) / LOG)
    last = max(checkpoints, default=-1)
    for version in sorted((version for version in commits if version > last), reverse=True):
        found = _find_cluster_columns(_read_commit_domains(commits[version]))
        if found is not None:
            return found
    for file in checkpoints.get(last, []):
        found = _find_cluster_columns(_read_checkpoint_domains(file))
        if found is not None:
            return found
    return ()


def was_clustered_otherwise(path: str) -> bool:
    """Whether files may still be ordered by earlier cluster columns: these were changed, and not all files were rewritten since.

    Looks as far back as the log goes.
    """
    changes: list[tuple[str, str]] = []
    for commit in commit_history.read_commit_history(path):
        said = commit["parameters"] or {}
        if commit["operation"] == "OPTIMIZE" and str(said.get("isFull")).lower() == "true":
            break
        if commit["operation"] == "CLUSTER BY":
            changes.append((said.get("oldClusteringColumns") or "", said.get("newClusteringColumns") or ""))
    # A purge clusters a table by nothing, and then as before (`marked_row_purge`).
    while len(changes) > 1 and changes[1] == (changes[0][1], ""):
        del changes[:2]
    return bool(changes and changes[0][0])


def _find_cluster_columns(domains: Iterable[dict[str, Any]]) -> tuple[str, ...] | None:
    """Returns the cluster columns that an action names; None if none does."""
    for domain in domains:
        if domain.get("domain") == _CLUSTERING_DOMAIN:
            said = json.loads(domain.get("configuration") or "{}")
            columns: Sequence[Sequence[str]] = [] if domain.get("removed") else said.get("clusteringColumns", [])
            return tuple(".".join(column) for column in columns)
    return None


def _read_commit_domains(commit: Location) -> list[dict[str, Any]]:
    lines = split_commit_lines(commit.read_bytes())
    return [json.loads(line)[_DOMAIN_ACTION] for line in lines if line.startswith(f'{{"{_DOMAIN_ACTION}"'.encode())]


def _read_checkpoint_domains(file: Location) -> list[dict[str, Any]]:
    if file.name.endswith(".json"):
        actions = map(json.loads, split_commit_lines(file.read_bytes()))
        return [action[_DOMAIN_ACTION] for action in actions if _DOMAIN_ACTION in action]
    with open_to_read(file) as content, pq.ParquetFile(content) as opened:
        if _DOMAIN_ACTION not in opened.schema_arrow.names:
            return []
        return [row for row in opened.read([_DOMAIN_ACTION])[_DOMAIN_ACTION].to_pylist() if row is not None]
