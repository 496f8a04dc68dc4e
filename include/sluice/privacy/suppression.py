"""Applies the suppression list, so that no redelivery brings an erased person back, and finds records too old to be kept.

An entry for an identifier that changes hands covers the time during which it was the person's; a row whose time is unknown counts as
the person's. A lifted entry still covers data from before the lifting, so the person comes back by new data only.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import parse_duration
from sluice.declare.privacy.treat import AS_TEXT, Canonical
from sluice.lake import table_frames
from sluice.lake.workspace import Workspace
from sluice.privacy import anonymised, secrets
from sluice.privacy.pseudonyms import PseudonymSpec, add_pseudonym_columns
from sluice.privacy.suppression_list import is_suppression_list_empty, read_listed_values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PSEUDONYM, _AT, _DELIVERY, _EVERY = "_pseudonym", "_suppressed_at", "_delivery", "_sluice_every"
_ENTRY = {name: f"_sluice_entry_{name}" for name in ("pseudonym", "valid_from", "valid_to", "lifted_at", "lifted_delivery")}
_THEIRS = (
    f"{_PSEUDONYM} = {_ENTRY['pseudonym']}"
    f" AND ({_AT} < {_ENTRY['valid_from']}) IS NOT TRUE"
    f" AND ({_AT} >= {_ENTRY['valid_to']}) IS NOT TRUE"
)
"""A NULL on either side, which is an open end or an unknown time, counts as the person's."""


def row_instant_column(frame: DataFrame, text: str | None) -> Column | None:
    """The instant each row is about, as an SQL expression over the frame's columns. None if undeclared, or if the frame lacks a column."""
    if text is None:
        return None
    made = F.expr(text).try_cast("timestamp")
    try:
        frame.select(made)
    except AnalysisException:
        return None
    return made


def exclude_suppressed_rows(
    workspace: Workspace,
    frame: DataFrame,
    subject: Column,
    domain: str,
    at: Column | None = None,
    then: datetime | None = None,
) -> DataFrame:
    """Returns the frame without rows of people on the list; unchanged if the list has nobody of that domain. NULL subjects stay.

    at: the instant each row is about; NULL may be any time. then: if the frame is an earlier state of a table, the instant of that
    state. To decide whether a row dates from before an entry was lifted, `then` counts first, then `at`, then the frame's column
    `_delivery`; a frame with none of them is of the present.
    """
    for entry in _listed_domains_and_forms(workspace, domain):
        frame = _match_entry(workspace, frame, subject, entry, at, then, "left_anti")
    return frame


def select_suppressed_rows(
    workspace: Workspace,
    frame: DataFrame,
    subject: Column,
    domain: str,
    at: Column | None = None,
    then: datetime | None = None,
) -> DataFrame:
    """Returns only the frame's rows of people on the list. See `exclude_suppressed_rows`."""
    found, rest = [], frame
    for entry in _listed_domains_and_forms(workspace, domain):
        found.append(_match_entry(workspace, rest, subject, entry, at, then, "left_semi"))
        rest = _match_entry(workspace, rest, subject, entry, at, then, "left_anti")
    return functools.reduce(lambda a, b: a.unionByName(b), found) if found else frame.where(F.lit(False))


def flag_suppressed_cells(
    workspace: Workspace, frame: DataFrame, cells: Mapping[str, str], at: Column | None = None, then: datetime | None = None
) -> DataFrame:
    """Adds a flag for each of these cells (columns with their domains) that says whether it holds an erased person.

    at, then: see `exclude_suppressed_rows`. All rows stay, each once.
    """
    for column, domain in cells.items():
        flagged = frame.withColumn(anonymised.erased_cell_flag(column), F.lit(False))
        for entry in _listed_domains_and_forms(workspace, domain):
            flagged = _flag_cells_of_entry(workspace, flagged, column, entry, at, then)
        frame = flagged
    return frame


def empty_suppressed_cells(
    workspace: Workspace, declared: Source | Dataset[Any], frame: DataFrame, then: datetime | None = None
) -> DataFrame:
    """Puts NULL where an erased person stands in another's row. Returns the frame itself if that cannot occur. then: see above."""
    here = {name.lower() for name in frame.columns}
    cells = {
        name: domain
        for name, domain in subjects.find_other_subject_columns(workspace.graph, declared).items()
        if name.lower() in here
    }
    if not cells or is_suppression_list_empty(workspace):
        return frame
    flagged = flag_suppressed_cells(
        workspace, frame, cells, row_instant_column(frame, subjects.subject_time_expression(declared)), then
    )
    return anonymised.empty_flagged_cells(flagged, cells)


def _flag_cells_of_entry(
    workspace: Workspace, frame: DataFrame, column: str, entry: tuple[str, Canonical], at: Column | None, then: datetime | None
) -> DataFrame:
    timed, (domain, form) = frame.withColumn(_AT, F.lit(None).cast("timestamp") if at is None else at), entry
    key = secrets.read_suppression_key(workspace.settings, workspace.suppression)
    hashed = add_pseudonym_columns(
        timed, {_PSEUDONYM: PseudonymSpec(key, domain, anonymised.subject_text_in_cell(frame, column), form)}
    )
    # One row per listed person: a join must not duplicate rows.
    listed = _read_domain_entries(frame.sparkSession, workspace.suppression, domain)
    people = listed.groupBy(_ENTRY["pseudonym"]).agg(F.collect_list(F.struct(*listed.columns)).alias(_EVERY))
    held = f"{_THEIRS} AND ({_ENTRY['lifted_at']} IS NULL OR {_is_before_lifting(frame, at is not None, then)})"
    inside = f"exists({_EVERY}, one -> {held.replace('_sluice_entry_', 'one._sluice_entry_')})"
    joined = hashed.join(F.broadcast(people), F.col(_PSEUDONYM) == F.col(_ENTRY["pseudonym"]), "left")
    said = anonymised.erased_cell_flag(column)
    told = joined.withColumn(said, F.col(said) | F.coalesce(F.expr(inside), F.lit(False)))
    return told.drop(_PSEUDONYM, _AT, _EVERY, _ENTRY["pseudonym"])


def _listed_domains_and_forms(workspace: Workspace, domain: str) -> list[tuple[str, Canonical]]:
    """The names and forms under which a domain's people are listed: its own name and its former ones, each in every form.

    Entries from before a form was declared, whose identifiers have left the vault, are of the text as it was written.
    """
    if not delta_log.is_delta_table(workspace.suppression):
        return []
    wanted = {domain, *workspace.graph.former(domain)} & read_listed_values(workspace.suppression, "domain")
    forms = dict.fromkeys((workspace.graph.canonical(domain), AS_TEXT))
    return [(name, form) for name in sorted(wanted) for form in forms]


def _match_entry(
    workspace: Workspace,
    frame: DataFrame,
    subject: Column,
    entry: tuple[str, Canonical],
    at: Column | None,
    then: datetime | None,
    how: Literal["left_anti", "left_semi"],
) -> DataFrame:
    timed, (domain, form) = frame.withColumn(_AT, F.lit(None).cast("timestamp") if at is None else at), entry
    key = secrets.read_suppression_key(workspace.settings, workspace.suppression)
    hashed = add_pseudonym_columns(timed, {_PSEUDONYM: PseudonymSpec(key, domain, subject, form)})
    entries = F.broadcast(_read_domain_entries(frame.sparkSession, workspace.suppression, domain))
    held = F.expr(f"{_THEIRS} AND ({_ENTRY['lifted_at']} IS NULL OR {_is_before_lifting(frame, at is not None, then)})")
    return hashed.join(entries, held, how).drop(_PSEUDONYM, _AT)


def _is_before_lifting(frame: DataFrame, timed: bool, then: datetime | None) -> str:
    """An SQL condition: whether a row dates from before an entry was lifted."""
    lifted, last = _ENTRY["lifted_at"], _ENTRY["lifted_delivery"]
    if then is not None:
        return f"{lifted} > timestamp_micros({int(then.timestamp() * 1e6)})"
    by_delivery = f"{_DELIVERY} <= {last}" if _DELIVERY in frame.columns else "false"
    return f"coalesce({_AT} < {lifted}, {by_delivery})" if timed else by_delivery


def _read_domain_entries(session: SparkSession, path: str, domain: str) -> DataFrame:
    listed = table_frames.read_table(session, path).where(F.col("domain") == domain)
    return listed.select(*(F.col(name).alias(made) for name, made in _ENTRY.items()))


_INGESTED_AT = "_ingested_at"


def oldest_kept_instant(source: Source, now: datetime | None = None) -> datetime | None:
    """The instant (UTC) before which a source's table keeps nothing. None where it keeps everything."""
    return None if source.keep_for is None else (now or datetime.now(UTC)) - parse_duration(source.keep_for)


def is_older_than_kept(source: Source, frame: DataFrame, before: datetime) -> Column:
    """Whether a record's time is before that instant.

    A record without a time, or with one later than its arrival, is as old as its arrival. Otherwise it would stay for ever.
    """
    came = F.col(_INGESTED_AT)
    told = row_instant_column(frame, source.subject_at or source.dated_by)
    return (came if told is None else F.least(F.coalesce(told, came), came)) < F.lit(before)
