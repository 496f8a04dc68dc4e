"""Repairs tables with a damaged log: finds which flows must start anew and what is lost, and sets the damaged files aside. Needs no JVM.

A lost commit is replaced by one that changes nothing, so that versions keep their numbers. The flow that wrote the table writes its rows
again: silver, views and quarantines from their inputs, bronze from the landing folder. Flows that read the table start anew.

Other records show what a lost commit held: deliveries to be read again, and requests whose people are no longer on the suppression list.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from sluice.commit_operations import REPAIR
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.delivery_states import INGESTED, LOST, QUARANTINED
from sluice.delta_log import (
    LOG,
    DamagedLog,
    LogDamage,
    checksum_file_path,
    find_log_damage,
    list_log_versions,
    split_commit_lines,
)
from sluice.durable_files import write_text_durably
from sluice.erasure import ledger as erasure_ledger
from sluice.erasure import requests
from sluice.errors import SluiceError, UsageError, nearest_name_hint
from sluice.flows.progress import checkpoints
from sluice.ingest import ledger
from sluice.lake import durability
from sluice.lake.commit_marks import format_commit_mark
from sluice.lake.places import locate_stage_tables
from sluice.locations import Location, locate
from sluice.open_tables import CatalogOwnsCommits, TableSnapshot, open_delta_table
from sluice.pipeline_records import name_quarantine
from sluice.settings import Settings

SET_ASIDE = "set_aside"
"""The folder among a pipeline's records that keeps damaged files."""

_SUPPRESSION = "suppression"
"""The table of erased people."""


@dataclass(frozen=True)
class LogRepair:
    """A table with a damaged log. anew: the declared tables whose flows start anew. streams: those of them that have state.

    since: when the last whole commit was made (UTC); what came later is lost. lost: by source, the deliveries to be read again. refused: why it
    cannot be repaired here, and what to do. later: damaged commits for the next repair: what they held can be found only once the cut
    checkpoint is set aside.
    """

    table: str
    path: str
    damage: tuple[LogDamage, ...]
    anew: tuple[str, ...]
    streams: tuple[str, ...]
    since: datetime | None
    lost: dict[str, tuple[int, ...]]
    refused: str | None
    later: tuple[LogDamage, ...] = ()


def find_log_repairs(settings: Settings, graph: Graph, only: str | None = None) -> list[LogRepair]:
    """Returns the tables of a pipeline with a damaged log, or only the named one. Raises UsageError if it is not a table."""
    around = locate_stage_tables(settings, graph)
    if only is not None and only not in around:
        raise UsageError(f"There is no table '{only}' in '{graph.pipeline.name}'.{nearest_name_hint(only, around)}")
    wanted = around if only is None else {only: around[only]}
    damaged = {name: tuple(find_log_damage(path)) for name, path in wanted.items()}
    return [_plan_log_repair(settings, graph, name, around[name], damage) for name, damage in damaged.items() if damage]


def repair_table_log(settings: Settings, graph: Graph, repair: LogRepair) -> None:
    """Makes the flows start anew, and sets the damaged files aside. Call it under the lease. Raises SluiceError if the repair is refused."""
    records = graph.records(settings)
    if repair.refused:
        raise SluiceError(repair.refused)
    # The table counts as damaged until the last step, so the next repair finishes a killed one.
    for name in repair.anew:
        flow = graph.flow_name(graph[name])
        checkpoints.reset_checkpoint(records.checkpoints(flow), flow, f"a commit of '{repair.table}' was lost")
    for source, numbers in repair.lost.items():
        record_lost_deliveries(settings, graph, source, numbers)
    durability.flush_run_output(settings)
    restricted = locate(repair.path).is_relative_to(settings.restricted)
    books = locate(records.bookkeeping(SET_ASIDE, restricted=restricted))
    aside = books / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}" / locate(repair.path).parent.name / locate(repair.path).name
    aside.mkdir(parents=True, exist_ok=True)
    for damage in repair.damage:
        _set_damage_aside(repair.path, damage, aside)
    durability.flush_run_output(settings)


def _plan_log_repair(settings: Settings, graph: Graph, name: str, path: str, damage: tuple[LogDamage, ...]) -> LogRepair:
    refused = _explain_refused_repair(graph, name, path, damage)
    later: tuple[LogDamage, ...] = ()
    checkpoints_cut = tuple(one for one in damage if not one.is_commit)
    if checkpoints_cut and not refused and _holds_what_no_flow_makes_again(graph, name):
        damage, later = checkpoints_cut, tuple(one for one in damage if one.is_commit)
    first = min((one.version for one in damage if one.is_commit), default=None)
    lost: dict[str, tuple[int, ...]] = {}
    if first and not refused:
        lost, refused = _find_losses(settings, graph, name, path, first)
    anew = _find_affected_flows(graph, name) if first is not None else ()
    return LogRepair(
        table=name,
        path=path,
        damage=damage,
        anew=anew,
        streams=tuple(one for one in anew if one in graph.streams),
        since=_read_commit_time(path, first - 1) if first else None,
        lost=lost,
        refused=refused,
        later=later,
    )


def _find_losses(
    settings: Settings, graph: Graph, name: str, path: str, first: int
) -> tuple[dict[str, tuple[int, ...]], str | None]:
    """Returns the deliveries, by source, that were lost with the commits from `first` on, and why the repair is refused, if it is."""
    called = f"'{graph.pipeline.name}.{name}'"
    try:
        if name == _SUPPRESSION:
            return {}, _explain_lost_people(graph, path, find_unlisted_requests(settings, graph, path, first - 1))
        return find_lost_deliveries(settings, graph, name, path, first - 1), None
    except DamagedLog:
        return {}, (
            f"What the damaged commits of {called} held is found by the records of its pipeline, and one of their logs is damaged, too. "
            f"Repeat this once that one is repaired: sluice repair {graph.pipeline.name}"
        )
    except UnreadableVersion as error:
        return {}, (
            f"What the damaged commits of {called} held is not known, since its version {error.version}, before them, cannot be read: "
            f"its log or its files from before are not whole either. Put {path} back from a backup."
        )


def _find_affected_flows(graph: Graph, name: str) -> tuple[str, ...]:
    """Returns the declarations whose flows write a table, its quarantine or its late rows, or read it."""
    found = [
        item.name for item in graph if name in _list_written_tables(graph, item) or name in _list_streamed_tables(graph, item)
    ]
    return tuple(dict.fromkeys(found))


def _list_written_tables(graph: Graph, item: Source | Dataset[Any]) -> Iterator[str]:
    yield graph.table_of(item.name)
    yield name_quarantine(item.name)
    if item.late:
        yield item.late
    if item.name in graph.sources:
        yield "outcomes"


def _list_streamed_tables(graph: Graph, item: Source | Dataset[Any]) -> Iterator[str]:
    yield from (graph.table_of(read) for read in item.reads)
    yield from item.streamed_records.values()


def _holds_what_no_flow_makes_again(graph: Graph, name: str) -> bool:
    """Whether a repair must know what a table lost: its flow does not write that again by itself."""
    written = (one for source in graph.sources.values() for one in (source.table, name_quarantine(source.name)))
    return name in (_SUPPRESSION, *written)


def _explain_refused_repair(graph: Graph, name: str, path: str, damage: Sequence[LogDamage]) -> str | None:
    called = f"'{graph.pipeline.name}.{name}'"
    if any(one.is_commit and one.version == 0 for one in damage):
        return (
            f"The first commit of {called} is damaged, and with it what columns it has. Put {path}/{LOG} back from a backup; "
            f"or move {path} away: the next run makes tables from scratch where it can, and for bronze it says how to read the deliveries again."
        )
    commits, _ = list_log_versions(locate(path) / LOG)
    last = max(commits, default=-1)
    if any(not one.is_commit for one in damage) and any(number not in commits for number in range(last + 1)):
        return f"A checkpoint of the log of {called} is damaged, and commits before it are gone. Put {path}/{LOG} back from a backup."
    return None


def _explain_lost_people(graph: Graph, path: str, missing: Sequence[str]) -> str | None:
    """Says why a list of erased people that lacks those of some requests cannot be repaired; None if it lacks nobody."""
    if not missing:
        return None
    return (
        f"The list of erased people of '{graph.pipeline.name}' has lost those of the requests {', '.join(missing)}, who would come "
        f"back with the next delivery. Put {path}/{LOG} back from a backup; nothing runs until then."
    )


def _read_commit_time(path: str, version: int) -> datetime | None:
    """Returns when a whole commit was made (UTC), or None if it does not say."""
    at = _read_stated_time(path, version, "timestamp")
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC)


def _read_stated_time(path: str, version: int, field: str) -> int | None:
    """Returns what a commit says of its time, in milliseconds since 1970; None if it does not, or if it is gone or damaged."""
    try:
        lines = split_commit_lines((locate(path) / LOG / f"{version:020d}.json").read_bytes())
        stated = (json.loads(line).get("commitInfo", {}).get(field) for line in lines)
        return next((one for one in stated if isinstance(one, int)), None)
    except (OSError, ValueError):
        return None


def _set_damage_aside(path: str, damage: LogDamage, aside: Location) -> None:
    """Moves a damaged file elsewhere, and replaces a damaged commit by one that changes nothing.

    Removes Delta's checksums of this version and later ones, which count what the commit held, or were made without it.
    """
    log = locate(path) / LOG
    file = log / damage.file
    if file.exists():
        shutil.copy2(file, aside / file.name)
    if not damage.is_commit:
        file.unlink()
        pointer = log / "_last_checkpoint"
        for one in (checksum_file_path(file), pointer, checksum_file_path(pointer)):
            one.unlink(missing_ok=True)
        return
    for one in log.glob("*.crc"):
        if one.stem.isdigit() and int(one.stem) >= damage.version:
            one.unlink()
            checksum_file_path(one).unlink(missing_ok=True)
    checksum_file_path(file).unlink(missing_ok=True)
    write_text_durably(file, _build_empty_commit(path, damage.version))


def _build_empty_commit(path: str, version: int) -> str:
    note, now = format_commit_mark(mode="repair"), int(datetime.now(UTC).timestamp() * 1000)
    said = {"timestamp": now, "operation": REPAIR, "operationParameters": {}, "userMetadata": note}
    at = _choose_commit_time(path, version, now)
    return json.dumps({"commitInfo": said if at is None else {"inCommitTimestamp": at, **said}}) + "\n"


def _choose_commit_time(path: str, version: int, now: int) -> int | None:
    """Returns the in-commit timestamp of a commit that takes the place of a lost one; None if its neighbours have none.

    Spark refuses a table whose properties require such times if a commit has none. The neighbours show that, and not the table, which may
    be too damaged to be opened. A commit that lost its neighbours too has a time, which a table that requires none ignores.
    The times increase from version to version, and there is room: the lost commit's own lay between those of its neighbours.
    """
    commits, _ = list_log_versions(locate(path) / LOG)
    later = (after for after in sorted(commits) if after > version)
    following = next((after for after in later if _read_stated_time(path, after, "timestamp") is not None), None)
    at_most = _read_stated_time(path, following, "inCommitTimestamp") if following is not None else None
    before = _read_stated_time(path, version - 1, "inCommitTimestamp")
    if following is not None and at_most is not None:
        return before + 1 if before is not None else at_most - (following - version)
    if before is not None:
        return max(now, before + 1)
    is_alone = following is None and _read_stated_time(path, version - 1, "timestamp") is None
    return now if is_alone else None


RUN = "repair"


"""The entry in the ledgers instead of a run's id."""


def find_lost_deliveries(settings: Settings, graph: Graph, table: str, path: str, version: int) -> dict[str, tuple[int, ...]]:
    """Returns, by source, the deliveries that have rows by their outcome, but none in bronze or its quarantine as of a version.

    A delivery is written in one commit. A delivery of a later commit is found, too: it is read again, and nothing is written twice.
    """
    found = {}
    for source in graph.sources.values():
        counted = "rows" if table == source.table else "quarantined" if table == name_quarantine(source.name) else None
        if counted is not None:
            there = _read_deliveries_at_version(path, version)
            rows = find_last_read_outcomes(settings, graph, source)
            numbers = tuple(sorted(number for number, row in rows.items() if row[counted] and number not in there))
            if numbers:
                found[source.name] = numbers
    return found


def find_last_read_outcomes(settings: Settings, graph: Graph, source: Source) -> dict[int, dict[str, Any]]:
    """Returns the last outcome of each delivery of a source that was read."""
    rows: list[dict[str, Any]] = ledger.read_delivery_ledger_rows(graph.records(settings).outcome_ledger)
    found = {row["delivery"]: row for row in ledger.sort_outcomes_by_recording(rows) if row["source"] == source.name}
    return {number: row for number, row in found.items() if row["state"] in (INGESTED, QUARANTINED)}


def record_lost_deliveries(settings: Settings, graph: Graph, name: str, numbers: Sequence[int]) -> None:
    """Records that deliveries must be read again, as if they had no outcome."""
    outcomes = graph.records(settings).outcome_ledger
    known = find_last_read_outcomes(settings, graph, graph.sources[name])
    reason = "its rows were in a commit that was lost; it is read again"
    rows = [
        {
            **{column: known[number][column] for column in ("delivery", "source", "file", "modified_at", "sha256")},
            **{"state": LOST, "rows": 0, "reason": reason, "run": RUN, ledger.RECORDED: datetime.now(UTC)},
        }
        for number in numbers
        if number in known
    ]
    ledger.append_delivery_ledger_rows(outcomes, rows, ledger.OUTCOMES, RUN)


def find_unlisted_requests(settings: Settings, graph: Graph, path: str, version: int) -> list[str]:
    """Returns the requests that were carried out, or begun, but are not on the list of erased people as of a version."""
    found = _query_version(path, version, "SELECT DISTINCT request FROM t")["request"].to_pylist()
    records = graph.records(settings)
    done = {one.request for one in requests.list_erasure_requests(records) if one.done_at is not None}
    return sorted((done | erasure_ledger.list_begun_requests(records)) - set(found))


def _read_deliveries_at_version(path: str, version: int) -> set[int]:
    """Returns the deliveries that a table had rows of at a version."""
    return set(_query_version(path, version, "SELECT DISTINCT _delivery FROM t")["_delivery"].to_pylist())


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
