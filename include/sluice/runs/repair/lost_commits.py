"""Repairs tables with a damaged log: finds which flows must start anew and what is lost, and sets the damaged files aside. Needs no JVM.

A lost commit is replaced by one that changes nothing, so that versions keep their numbers. The flow that wrote the table writes its rows
again: silver, views and quarantines from their inputs, bronze from the landing folder. Flows that read the table start anew.

What a lost commit held is found by other records (`lost_contents.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluice import durable_files
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.delta_log import LOG, LogDamage, checksum_file_path, find_log_damage, list_log_versions, split_commit_lines
from sluice.durable_files import write_text_durably
from sluice.errors import SluiceError, UsageError, nearest_name_hint
from sluice.flows.progress import checkpoints
from sluice.lake.commit_history import REPAIR
from sluice.lake.commit_marks import format_commit_mark
from sluice.lake.pipeline_lake import PipelineLake, locate_bookkeeping_tables
from sluice.locations import Location, locate
from sluice.own_records import OUTCOMES, SET_ASIDE
from sluice.pipeline_records import PipelineRecords, name_quarantine
from sluice.runs.repair import lost_contents, lost_removals


@dataclass(frozen=True)
class LogRepair:
    """A table with a damaged log. anew: the declared tables whose flows start anew. streams: those of them that have state.

    since: when the last whole commit was made (UTC); what came later is lost. lost: by source, the deliveries to be read again. refused: why it
    cannot be repaired here, and what to do. erased_again: the requests whose people may be back, and are erased once more. later: damaged
    commits for the next repair: what they held can be found only once the cut checkpoint is set aside.
    """

    table: str
    path: str
    damage: tuple[LogDamage, ...]
    anew: tuple[str, ...]
    streams: tuple[str, ...]
    since: datetime | None
    lost: dict[str, tuple[int, ...]]
    refused: str | None
    erased_again: tuple[str, ...] = ()
    later: tuple[LogDamage, ...] = ()


def find_log_repairs(lake: PipelineLake, only: str | None = None) -> list[LogRepair]:
    """Returns the tables of a pipeline with a damaged log, or only the named one. Raises UsageError if it is not a table."""
    around = lake.stage_tables()
    if only is not None and only not in around:
        raise UsageError(f"There is no table '{only}' in '{lake.graph.pipeline.name}'.{nearest_name_hint(only, around)}")
    wanted = around if only is None else {only: around[only]}
    damaged = {name: tuple(find_log_damage(path)) for name, path in wanted.items()}
    return [_plan_log_repair(lake, name, around[name], damage) for name, damage in damaged.items() if damage]


def repair_table_log(lake: PipelineLake, repair: LogRepair) -> None:
    """Makes the flows start anew, and sets the damaged files aside. Call it under the lease. Raises SluiceError if the repair is refused."""
    records = lake.records
    if repair.refused:
        raise SluiceError(repair.refused)
    # The table counts as damaged until the last step, so the next repair finishes a killed one.
    for name in repair.anew:
        flow = lake.graph.flow_name(lake.graph[name])
        checkpoints.reset_checkpoint(records.checkpoints(flow), flow, f"a commit of '{repair.table}' was lost")
    for source, numbers in repair.lost.items():
        lost_contents.record_lost_deliveries(lake, source, numbers)
    commits = [one.version for one in repair.damage if one.is_commit]
    if commits and not _is_own_record(records, repair.path):
        lost_removals.repeat_lost_erasures(records, repair.table, repair.erased_again)
        lost_removals.take_back_counts(records, repair.table, repair.path, commits)
    durable_files.flush_run_output(lake.settings)
    restricted = locate(repair.path).is_relative_to(lake.settings.restricted)
    books = locate(records.bookkeeping(SET_ASIDE.name, restricted=restricted))
    aside = books / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}" / locate(repair.path).parent.name / locate(repair.path).name
    aside.mkdir(parents=True, exist_ok=True)
    for damage in repair.damage:
        _set_damage_aside(repair.path, damage, aside)
    durable_files.flush_run_output(lake.settings)


def _plan_log_repair(lake: PipelineLake, name: str, path: str, damage: tuple[LogDamage, ...]) -> LogRepair:
    refused = _explain_refused_repair(lake.graph, name, path, damage)
    later: tuple[LogDamage, ...] = ()
    checkpoints_cut = tuple(one for one in damage if not one.is_commit)
    if checkpoints_cut and not refused and lost_contents.holds_what_no_flow_makes_again(lake.graph, name):
        damage, later = checkpoints_cut, tuple(one for one in damage if one.is_commit)
    first = min((one.version for one in damage if one.is_commit), default=None)
    lost: dict[str, tuple[int, ...]] = {}
    since = _read_commit_time(path, first - 1) if first else None
    if first and not refused:
        lost, refused = lost_contents.find_losses(lake, name, path, first, since)
    again: tuple[str, ...] = ()
    if first and not refused and not _is_own_record(lake.records, path):
        again, refused = lost_removals.find_lost_erasures(lake.records, name, since)
    anew = _find_affected_flows(lake.graph, name) if first is not None else ()
    return LogRepair(
        table=name,
        path=path,
        damage=damage,
        anew=anew,
        streams=tuple(one for one in anew if one in lake.graph.streams),
        since=since,
        lost=lost,
        refused=refused,
        erased_again=again,
        later=later,
    )


def _is_own_record(records: PipelineRecords, path: str) -> bool:
    """Whether a table is one of Sluice's own records: nobody is erased from these."""
    return path in locate_bookkeeping_tables(records).values()


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
        yield OUTCOMES.name


def _list_streamed_tables(graph: Graph, item: Source | Dataset[Any]) -> Iterator[str]:
    yield from (graph.table_of(read) for read in item.reads)
    yield from item.streamed_records.values()


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


def _read_commit_time(path: str, version: int) -> datetime | None:
    """Returns when a whole commit was made (UTC), or None if it does not say.

    A commit that a repair put in the place of a lost one was made later than those after it: the one before counts.
    """
    while version > 0 and _read_stated(path, version, "operation") == REPAIR:
        version -= 1
    at = _read_stated_time(path, version, "timestamp")
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC)


def _read_stated_time(path: str, version: int, field: str) -> int | None:
    """Returns what a commit says of its time, in milliseconds since 1970; None if it does not, or if it is gone or damaged."""
    stated = _read_stated(path, version, field)
    return stated if isinstance(stated, int) else None


def _read_stated(path: str, version: int, field: str) -> object:
    """Returns what a commit says of itself; None if it does not, or if it is gone or damaged."""
    try:
        lines = split_commit_lines((locate(path) / LOG / f"{version:020d}.json").read_bytes())
        stated = (json.loads(line).get("commitInfo", {}).get(field) for line in lines)
        return next((one for one in stated if one is not None), None)
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
    """Returns the in-commit timestamp of a commit that replaces a lost one; None if its neighbours have none.

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
