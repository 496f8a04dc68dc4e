"""The suppression list: who was erased, as pseudonyms by domain, so that no re-delivery brings anybody back.

An entry of an identifier that changes hands holds for the time during which it was the person's; a row of which it is not known when it
was counts as the person's. A lifted entry holds for what was there before: the person comes back by new data only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from sluice.delta_log import opened_table
from sluice.lake import commits, log, tables
from sluice.lake.commits import Transaction
from sluice.lake.tables import Shape
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression_key
from sluice.privacy.pseudonyms import with_pseudonym

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sluice.erasure.requests import Suppressed

SCHEMA = (
    "domain STRING, pseudonym STRING, request STRING, since TIMESTAMP, "
    "valid_from TIMESTAMP, valid_to TIMESTAMP, known_until TIMESTAMP, lifted_at TIMESTAMP, lifted_delivery BIGINT"
)
"""since: when it was listed. valid_from, valid_to: from when until when the identifier was the person's, NULL where that is open.

known_until: where valid_to is open, the last instant at which the person was said to have it. lifted_delivery: the last delivery that had
come when the entry was lifted. The last five columns a lake of before has not until `create`.
"""
_PSEUDONYM, _AT, _DELIVERY = "_pseudonym", "_suppressed_at", "_delivery"
_ENTRY = {name: f"_sluice_entry_{name}" for name in ("pseudonym", "valid_from", "valid_to", "lifted_at", "lifted_delivery")}
_THEIRS = (
    f"{_PSEUDONYM} = {_ENTRY['pseudonym']}"
    f" AND ({_AT} < {_ENTRY['valid_from']}) IS NOT TRUE"
    f" AND ({_AT} >= {_ENTRY['valid_to']}) IS NOT TRUE"
)
"""NULL on either side, an open end or a time that is not known, counts as the person's."""


def create(workspace: Workspace) -> None:
    """Make the list unless it is there, and give it the columns that it lacks. Raises UsageError where its key is not there."""
    shape = Shape(
        schema=tables.columns(SCHEMA),
        comment="Who was erased, as keyed hashes.",
        statistics=("domain",),
        change_feed=False,
    )
    path = workspace.suppression
    if not tables.create(workspace.session, path, shape):
        present = log.columns(path)
        added = [f"{field.name} {field.dataType.simpleString()}" for field in shape.schema if field.name not in present]
        if added:
            workspace.session.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({', '.join(added)})")
    suppression_key.keep_check(workspace.session, workspace.settings, path)


def add(workspace: Workspace, subjects: Mapping[str, Iterable[Suppressed]]) -> int:
    """Put the subjects of requests on the list, in one commit and once, however often it is tried. Returns how many are new."""
    create(workspace)
    workspace.note("suppression")
    now = datetime.now(UTC)
    there = listed(workspace) if subjects else frozenset()
    new = sorted(request for request, of in subjects.items() if of and request not in there)
    rows = [
        (one.domain, one.pseudonym, request, now, _instant(one.since), _instant(one.until), _instant(one.known_until), None, None)
        for request in new
        for one in dict.fromkeys(subjects[request])
    ]
    if not rows:
        return 0
    once = Transaction("suppression", hashlib.sha256(" ".join(new).encode()).hexdigest()[:12], "suppression", 0)
    commits.append(tables.inline(workspace.session, rows, SCHEMA), workspace.suppression, once)
    return len(rows)


def listed(workspace: Workspace) -> frozenset[str]:
    """The requests whose subjects are on the list."""
    return frozenset(_distinct(workspace.suppression, "request")) if log.exists(workspace.suppression) else frozenset()


def is_empty(workspace: Workspace) -> bool:
    """Whether nobody was ever erased; the flows then leave the check out of their plans."""
    state = log.state(workspace.suppression)
    return state is None or state.rows == 0


def instant(frame: DataFrame, text: str | None) -> Column | None:
    """Of what time each row of a frame tells, by SQL over its columns; None where it is not said, or the frame has not these columns."""
    if text is None:
        return None
    made = F.expr(text).try_cast("timestamp")
    try:
        frame.select(made)
    except AnalysisException:
        return None
    return made


def without_suppressed(
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
    for name in _listed(workspace, domain):
        frame = _matched(workspace, frame, subject, name, at, then, "left_anti")
    return frame


def only_suppressed(
    workspace: Workspace,
    frame: DataFrame,
    subject: Column,
    domain: str,
    at: Column | None = None,
    then: datetime | None = None,
) -> DataFrame:
    """The frame's rows of people on the list. See `without_suppressed`."""
    found, rest = [], frame
    for name in _listed(workspace, domain):
        found.append(_matched(workspace, rest, subject, name, at, then, "left_semi"))
        rest = _matched(workspace, rest, subject, name, at, then, "left_anti")
    if not found:
        return frame.where(F.lit(False))
    return found[0] if len(found) == 1 else found[0].unionByName(found[1])


Times = Mapping[tuple[str, str], Sequence[tuple[str, datetime | None, datetime | None]]]


def times(path: str) -> Times:
    """By domain and pseudonym the entries that hold: request, and from when until when the identifier was that person's. Without a JVM."""
    found: dict[tuple[str, str], list[tuple[str, datetime | None, datetime | None]]] = {}
    if log.exists(path):
        # All of them: a value in a query's text would be one more place where it stands.
        for row in pa.table(QueryBuilder().register("t", opened_table(path)).execute("SELECT * FROM t")).to_pylist():
            if row.get("lifted_at") is None:
                entry = str(row["request"]), row.get("valid_from"), row.get("valid_to")
                found.setdefault((row["domain"], row["pseudonym"]), []).append(entry)
    return found


def _listed(workspace: Workspace, domain: str) -> list[str]:
    """The names under which people of a domain are on the list: its own, and what it was called before sources could say one."""
    wanted = {domain, *workspace.graph.former(domain)}
    return sorted(wanted & _distinct(workspace.suppression, "domain")) if log.exists(workspace.suppression) else []


def _matched(
    workspace: Workspace,
    frame: DataFrame,
    subject: Column,
    domain: str,
    at: Column | None,
    then: datetime | None,
    how: Literal["left_anti", "left_semi"],
) -> DataFrame:
    timed = frame.withColumn(_AT, F.lit(None).cast("timestamp") if at is None else at)
    hashed = with_pseudonym(timed, suppression_key.key(workspace.settings, workspace.suppression), domain, subject, _PSEUDONYM)
    entries = F.broadcast(_entries(frame.sparkSession, workspace.suppression, domain))
    held = F.expr(f"{_THEIRS} AND ({_ENTRY['lifted_at']} IS NULL OR {_before_lifting(frame, at is not None, then)})")
    return hashed.join(entries, held, how).drop(_PSEUDONYM, _AT)


def _before_lifting(frame: DataFrame, timed: bool, then: datetime | None) -> str:
    """Whether a row was there before an entry was lifted, as SQL."""
    lifted, last = _ENTRY["lifted_at"], _ENTRY["lifted_delivery"]
    if then is not None:
        return f"{lifted} > timestamp_micros({int(then.timestamp() * 1e6)})"
    by_delivery = f"{_DELIVERY} <= {last}" if _DELIVERY in frame.columns else "false"
    return f"coalesce({_AT} < {lifted}, {by_delivery})" if timed else by_delivery


def _entries(session: SparkSession, path: str, domain: str) -> DataFrame:
    listed = tables.read(session, path).where(F.col("domain") == domain)
    kinds = {field.name: field.dataType for field in tables.columns(SCHEMA)}
    columns = {name: F.col(name) if name in listed.columns else F.lit(None).cast(kinds[name]) for name in _ENTRY}
    return listed.select(*(column.alias(_ENTRY[name]) for name, column in columns.items()))


def _distinct(path: str, column: str) -> set[str]:
    found = pa.table(QueryBuilder().register("t", opened_table(path)).execute(f'SELECT DISTINCT "{column}" FROM t'))
    return {str(value) for value in found[column].to_pylist()}


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
