"""Reads from a table's log by which columns it is clustered (liquid clustering). Without a JVM.

A table that was clustered once keeps that in its protocol. From then on delta-rs does not write it, and Delta refuses ZORDER.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow.parquet as pq

from sluice.delta_log import LOG, list_log_versions, split_commit_lines
from sluice.lake import commit_history
from sluice.locations import Location, locate, open_to_read
from sluice.open_tables import open_checked_table

_FEATURE = "clustering"
_DOMAIN = "delta.clustering"
_IN_CHECKPOINTS = "domainMetadata"


def has_clustering_feature(path: str) -> bool:
    """Whether a table is or was clustered. Raises DamagedLog, and TableNotFoundError if there is no table."""
    return _FEATURE in (open_checked_table(path).protocol().writer_features or ())


def read_cluster_columns(path: str) -> tuple[str, ...]:
    """Returns the columns by which a table's rows are clustered from now on; none if it is not clustered. Errors: as above.

    The newest entry of the log counts. Delta's protocol lets a checkpoint and the commits after it repeat everything that is valid.
    """
    if not has_clustering_feature(path):
        return ()
    commits, checkpoints = list_log_versions(locate(path) / LOG)
    last = max(checkpoints, default=-1)
    for version in sorted((version for version in commits if version > last), reverse=True):
        found = _find_columns(_read_commit_domains(commits[version]))
        if found is not None:
            return found
    for file in checkpoints.get(last, []):
        found = _find_columns(_read_checkpoint_domains(file))
        if found is not None:
            return found
    return ()


def was_clustered_otherwise(path: str) -> bool:
    """Whether files may still be ordered by earlier cluster columns: these were changed, and not all files were rewritten since.

    Looks as far back as the log goes.
    """
    for commit in commit_history.read_commit_history(path):
        said = commit["parameters"] or {}
        if commit["operation"] == "OPTIMIZE" and str(said.get("isFull")).lower() == "true":
            return False
        if commit["operation"] == "CLUSTER BY":
            return bool(said.get("oldClusteringColumns"))
    return False


def _find_columns(domains: Iterable[dict[str, Any]]) -> tuple[str, ...] | None:
    """Returns the cluster columns that an action names; None if none does."""
    for domain in domains:
        if domain.get("domain") == _DOMAIN:
            said = json.loads(domain.get("configuration") or "{}")
            columns: Sequence[Sequence[str]] = [] if domain.get("removed") else said.get("clusteringColumns", [])
            return tuple(".".join(column) for column in columns)
    return None


def _read_commit_domains(commit: Location) -> list[dict[str, Any]]:
    lines = split_commit_lines(commit.read_bytes())
    return [json.loads(line)[_IN_CHECKPOINTS] for line in lines if line.startswith(f'{{"{_IN_CHECKPOINTS}"'.encode())]


def _read_checkpoint_domains(file: Location) -> list[dict[str, Any]]:
    if file.name.endswith(".json"):
        actions = map(json.loads, split_commit_lines(file.read_bytes()))
        return [action[_IN_CHECKPOINTS] for action in actions if _IN_CHECKPOINTS in action]
    with open_to_read(file) as content, pq.ParquetFile(content) as opened:
        if _IN_CHECKPOINTS not in opened.schema_arrow.names:
            return []
        return [row for row in opened.read([_IN_CHECKPOINTS])[_IN_CHECKPOINTS].to_pylist() if row is not None]
