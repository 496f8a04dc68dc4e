"""Restricted tables, which lie below a root of their own, SLUICE_RESTRICTED, that only its owner can enter. Needs no JVM.

The root may be a disk of its own, which may not be mounted. A table whose declaration has changed may lie on the wrong side of it.
"""

from __future__ import annotations

from sluice import delta_log
from sluice.errors import SluiceError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import is_on_disk, locate
from sluice.open_tables import find_table_snapshot
from sluice.pipeline_records import QUARANTINE
from sluice.pipeline_stages import RELEASE
from sluice.private_files import require_private_folder
from sluice.settings import Settings


def find_absent_restricted_tables(lake: PipelineLake) -> dict[str, str]:
    """Tables below the restricted root that runs have written and that are not there: their paths by name, sorted.

    Of every kind: a view that nobody sees now holds people too once its disk is back.
    """
    below = locate(lake.settings.restricted)
    paths = {one.name: lake.path(one.name) for one in lake.graph if lake.graph.table_of(one.name) == one.name}
    absent = {
        name: path for name, path in paths.items() if locate(path).is_relative_to(below) and not delta_log.is_delta_table(path)
    }
    runs = find_table_snapshot(lake.records.run_ledger) if absent else None
    if runs is None:
        return {}
    written = runs.query_rows(f"SELECT DISTINCT flow FROM t WHERE version_after IS NOT NULL AND stage <> '{RELEASE}'")["flow"]
    return {name: absent[name] for name in sorted(set(absent) & set(written.to_pylist()))}


def refuse_absent_restricted_tables(lake: PipelineLake) -> None:
    """Raises SluiceError if restricted tables are absent: an erasure would pass over the people in them."""
    absent = find_absent_restricted_tables(lake)
    if absent:
        pipeline = lake.graph.pipeline.name
        raise SluiceError(
            f"Restricted tables of '{pipeline}' from which people must be removed are not there: {', '.join(absent)}. If they are on a "
            f"disk or a share, mount that, or let SLUICE_RESTRICTED say where they are. If they were removed for good, the next run makes them "
            f"anew: sluice run {pipeline}"
        )


def prepare_restricted_root(settings: Settings) -> None:
    """Makes the root with mode 0700. Raises UsageError if others can enter an existing one, before any row is written.

    On a store its owner decides who may read a bucket: nothing is made or checked there.
    """
    if is_on_disk(settings.restricted):
        require_private_folder(settings.restricted, "The folder of restricted tables")


def refuse_moved_table(settings: Settings, name: str, path: str, restricted: bool) -> None:
    """Raises SluiceError if the table also exists below the other root, where an earlier declaration put it."""
    here, there = str(settings.restricted), settings.lake
    if not restricted:
        here, there = there, here
    other = there + path.removeprefix(here)
    if delta_log.is_delta_table(other):
        now = "restricted now, and was not" if restricted else "not restricted any more"
        raise SluiceError(
            f"Table '{name}' is {now}: its earlier rows still lie in {other}. "
            f"It is made again from its inputs: remove that folder{_quarantine_folder_hint(other)}, then run again."
        )


def _quarantine_folder_hint(path: str) -> str:
    layer = locate(path).parent
    aside = layer.parent / QUARANTINE / locate(path).name
    return f" and {aside}" if aside.is_dir() else ""
