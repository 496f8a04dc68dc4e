"""Writes one table into a release: without personal columns, with the release's own pseudonym for the person that a row is about.

The pseudonym is made from the one under which the suppression list knows a person. So an erasure finds the person's rows in every release
without keeping anybody's identifier, and two releases cannot be joined by person.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.privacy.treat import Hmac
from sluice.declare.quoting import quote_column, quote_columns
from sluice.errors import UsageError
from sluice.flows.copies import restoration
from sluice.lake import log, table_creation, table_frames
from sluice.lake.releases import Release, new_release_table_path, swap_release_table
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import secrets, suppression_list
from sluice.privacy.pseudonyms import PseudonymSpec, add_pseudonym_column, add_pseudonym_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KNOWN, _MADE = "_known_by", "_pseudonym"


@dataclass(frozen=True)
class ReleasedColumns:
    """How a table's columns are released. pseudonyms: by column, the domain of its identifiers. left_out: columns that are not released."""

    pseudonyms: dict[str, str]
    shown: tuple[str, ...]
    left_out: tuple[str, ...]


def plan_released_columns(graph: Graph, dataset: Dataset[Any], names: list[str]) -> ReleasedColumns:
    """Returns how a table with these columns would be released. Raises UsageError if it cannot be released."""
    owner, whose = f"'{graph.pipeline.name}.{dataset.name}'", subjects.find_table_subjects(graph, dataset, names)
    small = dataset.at_least
    if dataset.restricted or dataset.serves:
        raise UsageError(f"{owner} is not released: it is {'restricted' if dataset.restricted else 'kept for another table'}.")
    if whose.unknown and not small:
        raise UsageError(
            f"{owner} is not released: its rows are of people ({', '.join(sorted(whose.unknown))}), and no column says whose, so that no erasure "
            "would reach them. Release a table that has the subject, or a view that leaves out small groups (at_least=)."
        )
    pseudonyms = {column: domain for column, domain in whose.columns if column in names}
    banded = {name for name, how in dataset.treatments.items() if not isinstance(how, Hmac)}
    hidden = {name.lower() for name in dataset.private - banded} - {name.lower() for name in pseudonyms}
    shown = tuple(name for name in names if name.lower() not in hidden and name not in PROVENANCE)
    return ReleasedColumns(pseudonyms, shown, tuple(name for name in names if name.lower() in hidden))


def release_table(workspace: Workspace, dataset: Dataset[Any], into: Release) -> dict[str, Any]:
    """Writes a table's current rows without those of erased people. Returns what the release says about the table."""
    path = workspace.path(dataset.name)
    version = log.latest_table_version(path)
    rows = restoration.drop_rows_of_erased(workspace, dataset, table_frames.read_table(workspace.session, path, version))
    chosen = plan_released_columns(workspace.graph, dataset, rows.columns)
    for column, domain in chosen.pseudonyms.items():
        rows = (
            _with_release_pseudonym(workspace, rows.drop(_KNOWN), quote_column(column), domain, into)
            .withColumn(column, F.col(_MADE))
            .drop(_MADE)
        )
    count = _write_release_table(rows.select(*quote_columns(chosen.shown)), into, dataset.name)
    return {
        "version": version,
        "rows": count,
        "pseudonyms": chosen.pseudonyms,
        "left_out": list(chosen.left_out),
        "erased": [],
    }


def erase_from_release(workspace: Workspace, of: Release, table: str, written: Collection[tuple[str, str]] = ()) -> int:
    """Removes everybody on the suppression list from a table of a release. Returns how many rows were removed.

    written: by domain, pseudonyms of identifiers in the form in which they were delivered: releases from before their form was declared use
    these.
    """
    path = str(of.folder / table)
    rows = table_frames.read_table(workspace.session, path)
    kept: DataFrame = rows
    for column, domain in of.tables[table]["pseudonyms"].items():
        called = [(made,) for name, made in written if name == domain]
        people = _read_suppressed_pseudonyms(workspace, domain, of)
        if called:
            known = table_creation.make_inline_frame(workspace.session, called, f"{_KNOWN} STRING")
            people = people.unionByName(_replace_by_release_pseudonym(workspace, known, of)).distinct()
        kept = kept.join(F.broadcast(people), quote_column(column) == F.col(_MADE), "left_anti")
    gone = rows.count() - kept.count()
    if gone:
        _write_release_table(kept, of, table)
    return gone


def _write_release_table(rows: DataFrame, into: Release, table: str) -> int:
    folder = new_release_table_path(into, table)
    rows.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").save(str(folder))
    state = log.read_table_state(str(folder))
    swap_release_table(into, table)
    return state.rows or 0 if state else 0


def _with_release_pseudonym(workspace: Workspace, rows: DataFrame, identifier: Column, domain: str, into: Release) -> DataFrame:
    key = secrets.read_suppression_key(workspace.settings, workspace.suppression)
    known = add_pseudonym_columns(rows, {_KNOWN: PseudonymSpec(key, domain, identifier, workspace.graph.canonical(domain))})
    return _replace_by_release_pseudonym(workspace, known, into)


def _replace_by_release_pseudonym(workspace: Workspace, known: DataFrame, into: Release) -> DataFrame:
    """Replaces the suppression list's pseudonym by the release's own."""
    key = secrets.read_suppression_key(workspace.settings, workspace.suppression)
    return add_pseudonym_column(known, key, into.domain, F.col(_KNOWN), _MADE).drop(_KNOWN)


def _read_suppressed_pseudonyms(workspace: Workspace, domain: str, of: Release) -> DataFrame:
    """Returns the release's pseudonyms of everybody on the list now. If an identifier changed hands, all its rows go: a copy may lack the time."""
    path = workspace.suppression
    if suppression_list.is_suppression_list_empty(workspace):
        return table_creation.make_inline_frame(workspace.session, [], f"{_MADE} STRING")
    listed = table_frames.read_table(workspace.session, path).where(
        F.col("domain").isin(sorted({domain, *workspace.graph.former(domain)}))
    )
    standing = listed.where(F.col("lifted_at").isNull()) if "lifted_at" in listed.columns else listed
    return _replace_by_release_pseudonym(workspace, standing.select(F.col("pseudonym").alias(_KNOWN)).distinct(), of)
