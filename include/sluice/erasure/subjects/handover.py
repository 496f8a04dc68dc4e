"""Identifiers that get a new owner after their last one was erased: from then on they are not the erased person's any more.

An entry of the suppression list that is open at its end holds until a link says that somebody else has the identifier. Links are looked at
in bronze, before what is delivered beside them is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from sluice.erasure.subjects import link_rows
from sluice.lake import log, table_frames
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression, suppression_key, suppression_list
from sluice.privacy.pseudonyms import add_pseudonym_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.declare.erasure.links import Link


def _find_handover_sources(workspace: Workspace) -> frozenset[str]:
    """The sources of links whose identifiers change hands."""
    graph = workspace.graph
    made = [
        graph.tables[name]
        for link in graph.links
        if link.since
        for name in (link.table, *graph.kept_for(link.table))
        if name in graph.tables
    ]
    return frozenset(one.name for table in made for one in graph.feeding(table.reads[0]))


def put_handover_sources_first(workspace: Workspace, levels: list[list[Any]]) -> list[list[Any]]:
    """The levels of the lowest layer, with the links' sources before the others, where somebody's identifier may get a new owner."""
    early = _find_handover_sources(workspace)
    if not early or suppression_list.is_suppression_list_empty(workspace):
        return levels
    parts = [[item for item in level if (item.name in early) is wanted] for wanted in (True, False) for level in levels]
    return [part for part in parts if part]


def end_handed_over_entries(workspace: Workspace, flows: Sequence[str]) -> int:
    """End entries whose identifiers have new owners. flows: that have run just now. Returns how many were ended."""
    if not _find_handover_sources(workspace) & set(flows) or suppression_list.is_suppression_list_empty(workspace):
        return 0
    changing = [link for link in workspace.graph.links if link.since]
    suppression_list.create_suppression_list(workspace)
    workspace.note("suppression")
    with link_rows.open_link_rows(workspace) as rows:
        return sum(_end_entries_of_link(workspace, link, rows) for link in changing)


def _end_entries_of_link(workspace: Workspace, link: Link, rows: link_rows.LinkRows) -> int:
    frame = rows.frame(link)
    path = workspace.suppression
    if frame is None:
        return 0
    open_ones = table_frames.read_table(workspace.session, path).where(
        (F.col("domain") == link.identifier[1]) & F.expr("valid_to IS NULL AND lifted_at IS NULL AND known_until IS NOT NULL")
    )
    if open_ones.isEmpty():
        return 0
    key = suppression_key.read_suppression_key(workspace.settings, path)
    others = suppression.exclude_suppressed_rows(workspace, frame.where("since IS NOT NULL"), F.col("person"), link.person[1])
    # Also as it is written: entries of before a form was declared are of the text.
    written = [others.select(F.col(name).alias("identifier"), "since") for name in ("identifier", "identifier_as_is")]
    every = written[0].unionByName(written[1]).distinct()
    hashed = add_pseudonym_column(every, key, link.identifier[1], F.col("identifier"), "pseudonym").select("pseudonym", "since")
    # Who is erased has no link any more: whoever is in one got the identifier before, or after.
    found = hashed.join(F.broadcast(open_ones.select("pseudonym", "known_until").distinct()), "pseudonym").where(
        "since > known_until"
    )
    ends = found.groupBy("pseudonym", "known_until").agg(F.min("since").alias("ended_at")).persist()
    try:
        return _write_entry_ends(workspace, path, link.identifier[1], ends)
    finally:
        ends.unpersist()


def _write_entry_ends(workspace: Workspace, path: str, domain: str, ends: DataFrame) -> int:
    if ends.isEmpty():
        return 0
    same = "t.domain = s.domain AND t.pseudonym = s.pseudonym AND t.known_until = s.known_until AND t.valid_to IS NULL"
    of_domain = ends.withColumn("domain", F.lit(domain))
    merging = DeltaTable.forPath(workspace.session, path).alias("t").merge(of_domain.alias("s"), same)
    merging.whenMatchedUpdate(set={"valid_to": "s.ended_at"}).execute()
    return int(log.read_commit_history(path, 1)[0]["metrics"].get("numTargetRowsUpdated", 0))
