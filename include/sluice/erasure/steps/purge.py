"""Rewrites files of tables with deletion vectors, whose deleted rows are only marked."""

from __future__ import annotations

from sluice import delta_log
from sluice.erasure.request_events import name_erasure_flow
from sluice.erasure.steps import canaries
from sluice.erasure.steps.erasure_step import ErasureStep
from sluice.lake.marked_row_purge import purge_marked_rows
from sluice.lake.workspace import Workspace
from sluice.locations import locate
from sluice.open_tables import open_checked_table

_VECTORS = "deletionVectors"


def purge_deletion_vectors(step: ErasureStep) -> None:
    """Rewrites such files of all tables that may have deletion vectors. Sluice's own have none unless somebody enabled them."""
    workspace = step.propagation.workspace
    for name, path in {
        **workspace.lake.record_tables(),
        **canaries.canary_table_paths(workspace, step.propagation.waiting),
    }.items():
        if delta_log.is_delta_table(path) and not step.is_done(name):
            step.record_done(name, files=_purge_table_vectors(workspace, name, path))


def _purge_table_vectors(workspace: Workspace, name: str, path: str) -> int:
    """Rewrites the files of one table that have rows marked as deleted. Returns how many."""
    if not _may_have_deletion_vectors(path):
        return 0
    workspace.mark_next_commits(name_erasure_flow(name))
    return purge_marked_rows(workspace.session, path)[0]


def _may_have_deletion_vectors(path: str) -> bool:
    """Decides by the table's protocol, which keeps the feature even when the property is turned off again."""
    features = open_checked_table(path).protocol().writer_features or []
    return _VECTORS in features or any(locate(path).glob("deletion_vector_*.bin"))
