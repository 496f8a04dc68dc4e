"""Which bronze tables were searched for rows that ask for an erasure, and whether they may hold unread ones since.

Airflow's tasks load this module too, so it loads no Spark, and declarations only where it is given some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sluice.durable_files import KeptFileDamaged, load_kept_json, write_json_durably
from sluice.pipeline_records import PipelineRecords

if TYPE_CHECKING:
    from sluice.declare.erasure.identifiers import ErasureRequests
    from sluice.lake.pipeline_lake import PipelineLake


@dataclass(frozen=True)
class SearchedTable:
    """A bronze table as it was when it was searched. mark: see `log.table_change_mark`; "" to search it again."""

    path: str
    mark: str

    def has_changed(self) -> bool:
        """Whether it has changed since. False if the table is gone."""
        return _read_change_mark(self.path) not in (None, self.mark)


def read_searched_tables(records: PipelineRecords) -> dict[str, SearchedTable] | None:
    """The tables that were searched last, by declaration. {} if none were; None if the file is damaged: then all are searched again."""
    try:
        return load_kept_json(
            records.searched_tables_file,
            "where requests were looked for",
            "",
            lambda said: {name: SearchedTable(**one) for name, one in said.items()},
        )
    except FileNotFoundError:
        return {}
    except KeptFileDamaged:
        return None


def write_searched_tables(records: PipelineRecords, searched: Mapping[str, SearchedTable]) -> None:
    """Stores what was searched, atomically."""
    path = records.searched_tables_file
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(path, {name: asdict(one) for name, one in searched.items()})


def reset_searched_tables(records: PipelineRecords) -> None:
    """Makes all rows be searched again: one may have been skipped because of a request that no longer exists."""
    before = read_searched_tables(records)
    if before:
        write_searched_tables(records, {name: SearchedTable(one.path, mark="") for name, one in before.items()})


def may_hold_unseen_requests(records: PipelineRecords) -> bool:
    """Whether bronze may hold rows that are unread requests, as far as one can know without the pipeline's declarations.

    That is so if a table was searched for requests before, and has changed since.
    """
    searched = read_searched_tables(records)
    return searched is None or any(one.has_changed() for one in searched.values())


def has_unseen_request_rows(lake: PipelineLake) -> bool:
    """Whether bronze has rows that have not been searched for requests yet. Reads the log, without Spark."""
    searched = read_searched_tables(lake.records) or {} if lake.graph.asking else {}
    found = ((one, describe_request_table(lake, one)) for one in lake.graph.asking)
    return any(now is not None and now != searched.get(request_declaration_key(one)) for one, now in found)


def describe_request_table(lake: PipelineLake, asking: ErasureRequests) -> SearchedTable | None:
    """The table that a declaration reads, as it is now; None if it is not there."""
    from sluice.declare.expansion import resolve_temporary_views  # in a function: who has no declarations needs none

    path = lake.path(resolve_temporary_views(lake.graph.unstored, asking.reads)[0])
    mark = _read_change_mark(path)
    return None if mark is None else SearchedTable(path, mark)


def request_declaration_key(asking: ErasureRequests) -> str:
    """The name of a declaration among those that were searched for."""
    return f"{asking.reads}.{asking.identifier[0]}: {asking.where}"


def _read_change_mark(path: str) -> str | None:
    from sluice.lake import log  # in a function, because Airflow parses this module

    return log.table_change_mark(path)
