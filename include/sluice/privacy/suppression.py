"""The suppression list: who was erased, as pseudonyms by domain, so that no re-delivery brings anybody back.

An entry of an identifier that changes hands holds for the time during which it was the person's; a row of which it is not known when it
was counts as the person's. A lifted entry holds for what was there before: the person comes back by new data only.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.datasets.tables import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.privacy.treat import AS_TEXT, Canonical
from sluice.delta_log import open_checked_table
from sluice.lake import commits, log, tables
from sluice.lake.commits import Transaction
from sluice.lake.tables import TableShape
from sluice.lake.workspace import Workspace
from sluice.privacy import other_subjects, suppression_key
from sluice.privacy.pseudonyms import PseudonymSpec, add_pseudonym_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sluice.erasure.requests import SuppressedIdentifier

SCHEMA = (
    "domain STRING, pseudonym STRING, request STRING, since TIMESTAMP, "
    "valid_from TIMESTAMP, valid_to TIMESTAMP, known_until TIMESTAMP, lifted_at TIMESTAMP, lifted_delivery BIGINT"
)
"""since: when it was listed. valid_from, valid_to: from when until when the identifier was the person's, NULL where that is open.

known_until: where valid_to is open, the last instant at which the person was said to have it. lifted_delivery: the last delivery that had
come when the entry was lifted. The last five columns a lake of before has not until `create_suppression_list`.
"""
FORMS = "sluice.canonicalForms"
"""The list's table property that tells in which forms its entries are, by domain; what it does not name is as text."""
_PSEUDONYM, _AT, _DELIVERY, _EVERY = "_pseudonym", "_suppressed_at", "_delivery", "_sluice_every"
_ENTRY = {name: f"_sluice_entry_{name}" for name in ("pseudonym", "valid_from", "valid_to", "lifted_at", "lifted_delivery")}
_THEIRS = (
    f"{_PSEUDONYM} = {_ENTRY['pseudonym']}"
    f" AND ({_AT} < {_ENTRY['valid_from']}) IS NOT TRUE"
    f" AND ({_AT} >= {_ENTRY['valid_to']}) IS NOT TRUE"
)
"""NULL on either side, an open end or a time that is not known, counts as the person's."""


def create_suppression_list(workspace: Workspace) -> None:
    """Make the list unless it is there, and give it the columns that it lacks. Raises UsageError where its key is not there."""
    shape = TableShape(
        schema=tables.parse_ddl_schema(SCHEMA),
        comment="Who was erased, as keyed hashes.",
        statistics=("domain",),
        change_feed=False,
    )
    path = workspace.suppression
    if tables.create_table(workspace.session, path, shape):
        record_canonical_forms(workspace)
    else:
        present = log.read_column_names(path)
        added = [f"{field.name} {field.dataType.simpleString()}" for field in shape.schema if field.name not in present]
        if added:
            workspace.session.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({', '.join(added)})")
    suppression_key.record_key_check(workspace.session, workspace.settings, path)


def suppress_subjects(workspace: Workspace, subjects: Mapping[str, Iterable[SuppressedIdentifier]]) -> int:
    """Put the subjects of requests on the list, in one commit and once, however often it is tried. Returns how many are new."""
    create_suppression_list(workspace)
    workspace.note("suppression")
    now = datetime.now(UTC)
    there = list_suppressed_requests(workspace) if subjects else frozenset()
    new = sorted(request for request, of in subjects.items() if of and request not in there)
    rows = [
        (
            one.domain,
            one.pseudonym,
            request,
            now,
            _parse_utc_instant(one.since),
            _parse_utc_instant(one.until),
            _parse_utc_instant(one.known_until),
            None,
            None,
        )
        for request in new
        for one in dict.fromkeys(subjects[request])
    ]
    if not rows:
        return 0
    once = Transaction("suppression", hashlib.sha256(" ".join(new).encode()).hexdigest()[:12], "suppression", 0)
    commits.append_rows(tables.make_inline_frame(workspace.session, rows, SCHEMA), workspace.suppression, once)
    return len(rows)


def add_suppression_entries(workspace: Workspace, subjects: Mapping[str, Iterable[SuppressedIdentifier]]) -> int:
    """Put further subjects of requests that are listed already on the list, each once. Returns how many are new."""
    create_suppression_list(workspace)
    workspace.note("suppression")
    there, now = read_suppression_times(workspace.suppression), datetime.now(UTC)
    rows = [
        (
            one.domain,
            one.pseudonym,
            request,
            now,
            _parse_utc_instant(one.since),
            _parse_utc_instant(one.until),
            _parse_utc_instant(one.known_until),
            None,
            None,
        )
        for request, of in subjects.items()
        for one in dict.fromkeys(of)
        if request not in {entry[0] for entry in there.get((one.domain, one.pseudonym), ())}
    ]
    if rows:
        new = " ".join(sorted(f"{request} {called}" for _, called, request, *_ in rows))
        once = Transaction("suppression", hashlib.sha256(new.encode()).hexdigest()[:12], "suppression", 0)
        commits.append_rows(tables.make_inline_frame(workspace.session, rows, SCHEMA), workspace.suppression, once)
    return len(rows)


def canonical_forms_text(workspace: Workspace) -> str:
    """The forms in which identifiers are compared, by domain, where that is not as text."""
    return ",".join(f"{domain}={form}" for domain, form in sorted(workspace.graph.forms.items()))


def find_changed_forms(workspace: Workspace) -> frozenset[str]:
    """The domains that have another form now than when the list was made, or was recomputed last."""
    said = log.read_table_properties(workspace.suppression).get(FORMS, "")
    before, now = ({tuple(one.split("=")) for one in text.split(",") if one} for text in (said, canonical_forms_text(workspace)))
    return frozenset(pair[0] for pair in before ^ now)


def record_canonical_forms(workspace: Workspace) -> None:
    """Let the list tell in which forms it has its entries."""
    text = canonical_forms_text(workspace)
    if log.read_table_properties(workspace.suppression).get(FORMS, "") != text:
        workspace.session.sql(f"ALTER TABLE delta.`{workspace.suppression}` SET TBLPROPERTIES ('{FORMS}' = '{text}')")


def list_suppressed_requests(workspace: Workspace) -> frozenset[str]:
    """The requests whose subjects are on the list."""
    return (
        frozenset(_read_distinct_values(workspace.suppression, "request"))
        if log.is_delta_table(workspace.suppression)
        else frozenset()
    )


def is_suppression_list_empty(workspace: Workspace) -> bool:
    """Whether nobody was ever erased; the flows then leave the check out of their plans."""
    state = log.read_table_state(workspace.suppression)
    return state is None or state.rows == 0


def row_instant_column(frame: DataFrame, text: str | None) -> Column | None:
    """Of what time each row of a frame tells, by SQL over its columns; None where it is not said, or the frame has not these columns."""
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
    """The frame's rows but those of people on the list; the frame itself where the list has nobody of that domain. NULL subjects stay.

    at: of what time a row tells; NULL is any time. then: of when the frame is, where it is an earlier state of a table. By it, else by
    `at`, else by the column `_delivery` of the frame, it is told what was there before an entry was lifted; a frame without any is of now.
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
    """The frame's rows of people on the list. See `exclude_suppressed_rows`."""
    found, rest = [], frame
    for entry in _listed_domains_and_forms(workspace, domain):
        found.append(_match_entry(workspace, rest, subject, entry, at, then, "left_semi"))
        rest = _match_entry(workspace, rest, subject, entry, at, then, "left_anti")
    return functools.reduce(lambda a, b: a.unionByName(b), found) if found else frame.where(F.lit(False))


def flag_suppressed_cells(
    workspace: Workspace, frame: DataFrame, cells: Mapping[str, str], at: Column | None = None, then: datetime | None = None
) -> DataFrame:
    """The frame with a flag for each of these cells (columns, with their domains): whether an erased person stands in it. See `other_subjects`.

    at, then: see `exclude_suppressed_rows`. All rows stay, each once.
    """
    for column, domain in cells.items():
        flagged = frame.withColumn(other_subjects.erased_cell_flag(column), F.lit(False))
        for entry in _listed_domains_and_forms(workspace, domain):
            flagged = _flag_cells_of_entry(workspace, flagged, column, entry, at, then)
        frame = flagged
    return frame


def empty_suppressed_cells(
    workspace: Workspace, declared: Source | Dataset[Any], frame: DataFrame, then: datetime | None = None
) -> DataFrame:
    """The rows of a table with NULL where an erased person stands in another's; the frame itself where nobody can. then: see above."""
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
    return other_subjects.empty_flagged_cells(flagged, cells)


def _flag_cells_of_entry(
    workspace: Workspace, frame: DataFrame, column: str, entry: tuple[str, Canonical], at: Column | None, then: datetime | None
) -> DataFrame:
    timed, (domain, form) = frame.withColumn(_AT, F.lit(None).cast("timestamp") if at is None else at), entry
    key = suppression_key.read_suppression_key(workspace.settings, workspace.suppression)
    hashed = add_pseudonym_columns(
        timed, {_PSEUDONYM: PseudonymSpec(key, domain, other_subjects.subject_text_in_cell(frame, column), form)}
    )
    # One row for each who is listed: a join must not double what it is joined with.
    listed = _read_domain_entries(frame.sparkSession, workspace.suppression, domain)
    people = listed.groupBy(_ENTRY["pseudonym"]).agg(F.collect_list(F.struct(*listed.columns)).alias(_EVERY))
    held = f"{_THEIRS} AND ({_ENTRY['lifted_at']} IS NULL OR {_is_before_lifting(frame, at is not None, then)})"
    inside = f"exists({_EVERY}, one -> {held.replace('_sluice_entry_', 'one._sluice_entry_')})"
    joined = hashed.join(F.broadcast(people), F.col(_PSEUDONYM) == F.col(_ENTRY["pseudonym"]), "left")
    said = other_subjects.erased_cell_flag(column)
    told = joined.withColumn(said, F.col(said) | F.coalesce(F.expr(inside), F.lit(False)))
    return told.drop(_PSEUDONYM, _AT, _EVERY, _ENTRY["pseudonym"])


Times = Mapping[tuple[str, str], Sequence[tuple[str, datetime | None, datetime | None]]]


def read_suppression_times(path: str) -> Times:
    """By domain and pseudonym the entries that hold: request, and from when until when the identifier was that person's. Without a JVM."""
    found: dict[tuple[str, str], list[tuple[str, datetime | None, datetime | None]]] = {}
    if log.is_delta_table(path):
        # All of them: a value in a query's text would be one more place where it stands.
        for row in pa.table(QueryBuilder().register("t", open_checked_table(path)).execute("SELECT * FROM t")).to_pylist():
            if row.get("lifted_at") is None:
                entry = str(row["request"]), row.get("valid_from"), row.get("valid_to")
                found.setdefault((row["domain"], row["pseudonym"]), []).append(entry)
    return found


def _listed_domains_and_forms(workspace: Workspace, domain: str) -> list[tuple[str, Canonical]]:
    """How people of a domain are on the list: under its own name, and what it was called before sources could say one; in each form.

    Entries of before a form was declared, whose identifiers the vault has no more, are of the text as it was written.
    """
    if not log.is_delta_table(workspace.suppression):
        return []
    wanted = {domain, *workspace.graph.former(domain)} & _read_distinct_values(workspace.suppression, "domain")
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
    key = suppression_key.read_suppression_key(workspace.settings, workspace.suppression)
    hashed = add_pseudonym_columns(timed, {_PSEUDONYM: PseudonymSpec(key, domain, subject, form)})
    entries = F.broadcast(_read_domain_entries(frame.sparkSession, workspace.suppression, domain))
    held = F.expr(f"{_THEIRS} AND ({_ENTRY['lifted_at']} IS NULL OR {_is_before_lifting(frame, at is not None, then)})")
    return hashed.join(entries, held, how).drop(_PSEUDONYM, _AT)


def _is_before_lifting(frame: DataFrame, timed: bool, then: datetime | None) -> str:
    """Whether a row was there before an entry was lifted, as SQL."""
    lifted, last = _ENTRY["lifted_at"], _ENTRY["lifted_delivery"]
    if then is not None:
        return f"{lifted} > timestamp_micros({int(then.timestamp() * 1e6)})"
    by_delivery = f"{_DELIVERY} <= {last}" if _DELIVERY in frame.columns else "false"
    return f"coalesce({_AT} < {lifted}, {by_delivery})" if timed else by_delivery


def _read_domain_entries(session: SparkSession, path: str, domain: str) -> DataFrame:
    listed = tables.read_table(session, path).where(F.col("domain") == domain)
    kinds = {field.name: field.dataType for field in tables.parse_ddl_schema(SCHEMA)}
    columns = {name: F.col(name) if name in listed.columns else F.lit(None).cast(kinds[name]) for name in _ENTRY}
    return listed.select(*(column.alias(_ENTRY[name]) for name, column in columns.items()))


def _read_distinct_values(path: str, column: str) -> set[str]:
    found = pa.table(QueryBuilder().register("t", open_checked_table(path)).execute(f'SELECT DISTINCT "{column}" FROM t'))
    return {str(value) for value in found[column].to_pylist()}


def _parse_utc_instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
