"""Finds by a pipeline's other records what the lost commits of a table held, and records what must be read again. Needs no JVM.

These are deliveries that are to be read again, and requests whose people are no longer on the list of erased people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from sluice.declare.assembly.graph import Graph
from sluice.delivery_rows import RECORDED, REPEATED_IN_OUTCOMES, OutcomeRow
from sluice.delta_log import LOG, DamagedLog
from sluice.erasure import erasure_ledger, request_record
from sluice.errors import SluiceError
from sluice.ingest import delivery_tables
from sluice.lake.pipeline_lake import PipelineLake
from sluice.open_tables import CatalogOwnsCommits, TableSnapshot, open_delta_table
from sluice.pipeline_records import name_quarantine
from sluice.record_states import LOST

RUN = "repair"
"""The entry in the ledgers instead of a run's id."""
_SUPPRESSION = "suppression"
"""The table of erased people."""
CLOCKS_DIFFER = timedelta(hours=1)
"""By how much the clocks of two machines that wrote a lake may differ. If it is too long, more is read or erased again than was lost."""


def holds_what_no_flow_makes_again(graph: Graph, name: str) -> bool:
    """Whether a repair must know what a table lost: its flow does not write that again by itself."""
    written = (one for source in graph.sources.values() for one in (source.table, name_quarantine(source.name)))
    return name in (_SUPPRESSION, *written)


def find_losses(
    lake: PipelineLake, name: str, path: str, first: int, since: datetime | None
) -> tuple[dict[str, tuple[int, ...]], str | None]:
    """Returns the deliveries, by source, that were lost with the commits from `first` on, and why the repair is refused, if it is.

    since: when the commit before `first` was made, or None if it does not say.
    """
    called = f"'{lake.graph.pipeline.name}.{name}'"
    try:
        if name == _SUPPRESSION:
            return {}, _explain_lost_people(lake.graph, path, find_unlisted_requests(lake, path, first - 1))
        return find_lost_deliveries(lake, name, path, first - 1, since), None
    except DamagedLog:
        return {}, explain_damaged_record(lake.graph.pipeline.name, name)
    except UnreadableVersion as error:
        return {}, (
            f"What the damaged commits of {called} held is not known, since its version {error.version}, before them, cannot be read: "
            f"its log or its files from before are not whole either. Put {path} back from a backup."
        )


def explain_damaged_record(pipeline: str, table: str) -> str:
    """Says why a table cannot be repaired before the record by which its losses are found."""
    return (
        f"What the damaged commits of '{pipeline}.{table}' held is found by the records of its pipeline, and one of their logs is damaged, "
        f"too. Repeat this once that one is repaired: sluice repair {pipeline}"
    )


def _explain_lost_people(graph: Graph, path: str, missing: Sequence[str]) -> str | None:
    """Says why a list of erased people that lacks those of some requests cannot be repaired; None if it lacks nobody."""
    if not missing:
        return None
    return (
        f"The list of erased people of '{graph.pipeline.name}' has lost those of the requests {', '.join(missing)}, who would come "
        f"back with the next delivery. Put {path}/{LOG} back from a backup; nothing runs until then."
    )


def find_lost_deliveries(
    lake: PipelineLake, table: str, path: str, version: int, since: datetime | None
) -> dict[str, tuple[int, ...]]:
    """Returns, by source, the deliveries of which bronze or its quarantine had, as of a version, other rows than their outcomes say.

    A readmission writes rows of a delivery in a later commit than its others. So rows are counted, but only of deliveries whose outcome
    came after that version or shortly before it: older ones lack the rows that erasures and age have taken since. A delivery without any
    row in bronze is found whatever its date. A delivery of a later commit is found, too: the bronze flow reads again only what is not whole,
    and nothing is written twice.

    since: when the version was made; None if it does not say.
    """
    found = {}
    for source in lake.graph.sources.values():
        counted = "rows" if table == source.table else "quarantined" if table == name_quarantine(source.name) else None
        if counted is not None:
            there = _count_deliveries_at_version(path, version)
            read = delivery_tables.read_outcomes_of_read_deliveries(lake.records.outcome_ledger, source.name, even_if_lost=False)
            numbers = tuple(
                number
                for number, row in sorted(read.items())
                if there[number] != (row[counted] or 0)
                and (_is_recorded_since(row, since) or (counted == "rows" and not there[number]))
            )
            if numbers:
                found[source.name] = numbers
    return found


def _is_recorded_since(outcome: Mapping[str, Any], since: datetime | None) -> bool:
    at: datetime | None = outcome[RECORDED]
    return since is None or at is None or at >= since - CLOCKS_DIFFER


def record_lost_deliveries(lake: PipelineLake, name: str, numbers: Sequence[int]) -> None:
    """Records that deliveries must be read again, as if they had no outcome."""
    outcomes = lake.records.outcome_ledger
    known = delivery_tables.read_outcomes_of_read_deliveries(outcomes, name, even_if_lost=False)
    reason = "its rows were in a commit that was lost; it is read again"
    lost: OutcomeRow = {"state": LOST, "rows": 0, "reason": reason, "run": RUN, RECORDED: datetime.now(UTC)}
    rows = [
        {**{column: known[number][column] for column in REPEATED_IN_OUTCOMES}, **lost} for number in numbers if number in known
    ]
    delivery_tables.append_delivery_ledger_rows(outcomes, rows, delivery_tables.OUTCOMES, RUN)


def find_unlisted_requests(lake: PipelineLake, path: str, version: int) -> list[str]:
    """Returns the requests that were carried out, or begun, but are not on the list of erased people as of a version."""
    found = _query_version(path, version, "SELECT DISTINCT request FROM t")["request"].to_pylist()
    records = lake.records
    done = {one.request for one in request_record.list_erasure_requests(records) if one.rows_left_at is not None}
    return sorted((done | erasure_ledger.list_begun_requests(records)) - set(found))


def _count_deliveries_at_version(path: str, version: int) -> Counter[int]:
    """Returns how many rows of each delivery a table had at a version."""
    rows = _query_version(path, version, "SELECT _delivery, count(*) AS rows FROM t GROUP BY _delivery").to_pylist()
    return Counter({row["_delivery"]: row["rows"] for row in rows})


class UnreadableVersion(SluiceError):
    """A version of a table before its damage cannot be read."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(f"Version {version} of the table {path} cannot be read: its log or its files are not whole.")
        self.version = version


def _query_version(path: str, version: int, sql: str) -> pa.Table:
    """Returns the result of a query, in which the table's name is `t`, over a version of a table with a damaged log. Raises UnreadableVersion."""
    try:
        return TableSnapshot(open_delta_table(path, version=version)).query_rows(sql)
    except CatalogOwnsCommits:
        raise
    except Exception as error:  # delta-rs has no class of its own for a file that is gone
        raise UnreadableVersion(path, version) from error
