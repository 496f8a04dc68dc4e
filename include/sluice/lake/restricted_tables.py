"""Whether restricted tables that runs have written are there: their root may be a disk of its own, which may not be mounted. Needs no JVM."""

from __future__ import annotations

from sluice import delta_log
from sluice.errors import SluiceError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import locate
from sluice.open_tables import find_table_snapshot
from sluice.pipeline_stages import RELEASE


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
