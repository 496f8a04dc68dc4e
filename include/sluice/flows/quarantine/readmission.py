"""Readmission: checks entries of a quarantine again by today's declaration, or discards them.

Records of a source that fit now go to bronze under the delivery and row that they had, and a new outcome informs silver. A file that was
refused whole is read again as a whole. For a silver table, the keys of the rows are folded again. Each entry leaves quarantine once: a
journal first records what will leave, and the next run finishes a killed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.datasets.tables import Table
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column
from sluice.errors import UsageError
from sluice.flows.bronze import append, intake, table_shape
from sluice.flows.bronze.left_out_records import LeftOutRecords
from sluice.flows.bronze.one_by_one import ingest_together_or_singly
from sluice.flows.quarantine import settlement
from sluice.flows.quarantine.settlement import LeavingEntries
from sluice.flows.quarantine.staged_records import (
    QuarantinedRecord,
    StagedFiles,
    open_staging_folder,
    quarantine_entry_of_record,
    stage_file,
    stage_records,
)
from sluice.flows.silver import refold
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.known_files import read_current_deliveries
from sluice.ingest.deliveries.landed_file import is_file_surely_in_state
from sluice.ingest.reading.examination import Delivery, examine_deliveries
from sluice.lake import commits, table_creation
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.printable import count_noun
from sluice.quality import quarantine
from sluice.quality.quarantine import QuarantinedRow
from sluice.record_states import MISSED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST_RECORDS = 20_000
"""How many records of a quarantine are checked at once: their texts are in the driver's memory."""
MOST_ENTRIES = 1_000_000
"""The most entries of a quarantine whose ids are in the driver's memory."""


def replay_quarantined_entries(
    workspace: Workspace, name: str, entries: Sequence[QuarantinedRow] | None, report: FlowReport
) -> None:
    """Checks entries of a table's quarantine again; None means all. Raises UsageError if there is no entry of that name."""
    found = _find_quarantined_entries(workspace, name, entries)
    declared = workspace.graph[name]
    replay = declared.kind.replay_quarantined
    if replay is None:
        raise declared.kind.lacking_function_error("replay_quarantined")
    replay(workspace, declared, found, report)
    left = quarantine.read_quarantine_rows(workspace.session, workspace.quarantine(name), entries).count()
    report.notes.append(f"{left} still in quarantine" if left else "nothing of it is in quarantine any more")


def refold_quarantined_rows(workspace: Workspace, table: Table[Any], found: DataFrame, report: FlowReport) -> None:
    """Folds again the keys of a table's rows in quarantine."""
    # Read into memory: a frame over quarantine would be empty as soon as the fold has emptied it.
    origin = sorted(set(_collect_entries(found)))
    rows = table_creation.make_inline_frame(workspace.session, origin, "_delivery BIGINT, _row BIGINT")
    refold.refold_rows(workspace, table, rows, report)


def refuse_replay_of_topic(workspace: Workspace, source: Source, found: DataFrame, report: FlowReport) -> None:
    """Raises UsageError, because reading a topic's records again would give the same result."""
    raise UsageError(
        f"'{source.name}' reads topics: what is quarantined of them is bytes that no declaration changes. Discard it."
    )


def replay_refused_deliveries(workspace: Workspace, source: Source, found: DataFrame, report: FlowReport) -> None:
    """Reads records and whole files of a source again."""
    append.create_bronze_tables(workspace, source)
    single = found.where(F.col("_row").isNotNull())
    if _is_row_width_unknown(source):
        report.notes += _note_rows_of_unknown_width(source, single.count())
    else:
        _replay_records(workspace, source, single, report)
    _replay_whole_files(workspace, source, found.where(F.col("_row").isNull()), report)


def _is_row_width_unknown(source: Source) -> bool:
    """Whether only a whole file says how many fields its rows have: without it, any number of fields would be right."""
    return source.row_dialect is not None and not source.row_dialect.header and not source.ddl


def _note_rows_of_unknown_width(source: Source, count: int) -> list[str]:
    return (
        [
            f"{count_noun(count, 'row', 'stays', 'stay')}: the files of '{source.name}' have no header and it declares no schema, so a "
            "single row does not say how many fields it must have. Declare a schema and replay them, or discard them"
        ]
        if count
        else []
    )


def discard_quarantined_entries(
    workspace: Workspace, name: str, entries: Sequence[QuarantinedRow], reason: str, report: FlowReport
) -> None:
    """Removes entries of a source for good. reason: who and why; it goes into the ledger. Raises UsageError if there is no such entry."""
    declared = workspace.graph.sources[name]
    found = _find_quarantined_entries(workspace, name, entries)
    append.create_bronze_tables(workspace, declared)
    gone = _collect_entries(found)
    settlement.settle_readmission(workspace, LeavingEntries(workspace.run, name, discarded=gone, reason=reason))
    report.batches += 1
    report.deliveries += len({delivery for delivery, _ in gone})
    report.notes.append(f"{len(gone)} discarded")


def _find_quarantined_entries(workspace: Workspace, name: str, entries: Sequence[QuarantinedRow] | None) -> DataFrame:
    path = workspace.quarantine(name)
    if delta_log.is_delta_table(path):
        found = quarantine.read_quarantine_rows(workspace.session, path, entries)
        deliveries = {row._delivery for row in found.select("_delivery").distinct().collect()}
        asked = [row for _, row in entries or () if row is not None]
        present = set(_collect_entries(found.where(F.col("_row").isin(asked)))) if asked else set()
        missing = [one for one in entries or () if one not in present and (one[1] is not None or one[0] not in deliveries)]
        if deliveries and not missing:
            return found
        wanted = missing[0] if missing else None
    else:
        wanted = None
    keep = workspace.graph.pipeline.keep_quarantine
    expired = f". Rows that are there for more than {keep} expire" if keep else ""
    which = "/".join(str(part) for part in wanted if part is not None) if wanted else "nothing"
    raise UsageError(
        f"There is no {name}/{which} in quarantine. Ids: sluice quarantine list {workspace.pipeline} --ids{expired}"
        if wanted
        else f"Nothing of '{name}' is in quarantine{expired}."
    )


def _collect_entries(found: DataFrame) -> list[QuarantinedRow]:
    """Returns the ids of entries. Raises UsageError for more than the driver's memory is meant for."""
    rows = found.select(*PROVENANCE).limit(MOST_ENTRIES + 1).collect()
    if len(rows) > MOST_ENTRIES:
        raise UsageError(
            f"More than {MOST_ENTRIES:,} rows of quarantine at once. Name deliveries, as in TABLE/DELIVERY, some at a time."
        )
    return [(row._delivery, row._row) for row in rows]


def _replay_whole_files(workspace: Workspace, source: Source, found: DataFrame, report: FlowReport) -> None:
    """Reads whole files again: from the landing folder if they are unchanged, otherwise from their bytes in quarantine."""
    numbers = {row._delivery for row in found.select("_delivery").collect()}
    rows = read_current_deliveries(workspace.deliveries) if numbers else []
    landing = intake.source_landing_folder(workspace, source)
    judged = delivery_tables.read_last_delivery_states(workspace.outcomes)
    with open_staging_folder(workspace) as folder:
        for row in sorted((row for row in rows if row["delivery"] in numbers), key=lambda row: int(row["delivery"])):
            delivery = intake.delivery_from_row(row, landing)
            if (
                not is_file_surely_in_state(delivery.path, delivery.state)
                and (content := _read_quarantined_bytes(found, delivery)) is not None
            ):
                delivery = stage_file(delivery, content, folder)
            # A file that is refused again for the same reason, or whose bytes are gone, is left as it is.
            again = [
                item
                for item in examine_deliveries(source, [delivery])
                if item.state != MISSED and (item.state, item.reason) != judged.get(delivery.number)
            ]
            if again:
                workspace.mark_next_commits(workspace.graph.flow_name(source), [delivery.number])
                ingest_together_or_singly(workspace, source, again, report)


def _read_quarantined_bytes(found: DataFrame, delivery: Delivery) -> bytes | None:
    row = found.where(F.col("_delivery") == delivery.number).select("content").first()
    return bytes(row.content) if row is not None and row.content is not None else None


def _replay_records(workspace: Workspace, source: Source, found: DataFrame, report: FlowReport) -> None:
    """Reads records again, in parts whose texts fit into the driver's memory. Records that still do not fit stay in quarantine."""
    waiting = found.where(F.col("record").isNotNull()).orderBy(*PROVENANCE)
    rows = waiting.limit(MOST_RECORDS).collect()
    while rows:
        _replay_some_records(workspace, source, rows, report)
        last = rows[-1]
        later = (F.col("_delivery") > last._delivery) | ((F.col("_delivery") == last._delivery) & (F.col("_row") > last._row))
        rows = waiting.where(later).limit(MOST_RECORDS).collect() if len(rows) == MOST_RECORDS else []


def _replay_some_records(workspace: Workspace, source: Source, rows: Sequence[Row], report: FlowReport) -> None:
    outcomes = delivery_tables.read_last_outcomes(workspace.outcomes, ["header"], {row._delivery for row in rows})
    headers = {number: row["header"] for number, row in outcomes.items()}
    waiting = [QuarantinedRecord(row._delivery, row._row, row._file, row.record, headers.get(row._delivery)) for row in rows]
    with open_staging_folder(workspace) as folder:
        staged = stage_records(source, waiting, folder)
        _, parsed, _ = intake.read_delivery_records(workspace, source, staged.examined)
        try:
            if parsed.frame is not None:
                _admit_fitting_records(workspace, source, staged, parsed.frame, report)
        finally:
            parsed.release()


def _admit_fitting_records(
    workspace: Workspace, source: Source, staged: StagedFiles, parsed: DataFrame, report: FlowReport
) -> None:
    """Puts the records that fit now into bronze. parsed: the result of reading the staged files."""
    kept, _ = LeftOutRecords.of_source(workspace, source).take_out(parsed)
    fine = F.col("_problem").isNull()
    judged = kept.select(*PROVENANCE, fine.alias("fine"), F.col("_rescued_data").isNotNull().alias("rescued")).collect()
    sound = _find_identifiable_records(staged, [(row._delivery, row._row) for row in parsed.select(*PROVENANCE).collect()])
    good = {(row._delivery, row._row): row.rescued for row in judged if row.fine}
    left_out = sound - {(row._delivery, row._row) for row in judged}
    moved = sorted(key for key in sound if key in good)
    leaving = LeavingEntries(
        workspace.run,
        source.name,
        moved=[quarantine_entry_of_record(staged.records[key]) for key in moved],
        suppressed=[quarantine_entry_of_record(staged.records[key]) for key in sorted(left_out)],
        rescued=settlement.count_by_delivery(staged.records[key].delivery for key in moved if good[key]),
        after=settlement.find_last_outcome_entry(workspace),
    )
    if not leaving.entries:
        return
    settlement.write_readmission_journal(workspace, leaving)
    settlement.note_readmitted_deliveries(workspace, leaving)
    present = settlement.find_entries_in_bronze(workspace, source, leaving.moved)
    missing = [key for key in moved if quarantine_entry_of_record(staged.records[key]) not in present]
    if missing:
        _append_readmitted_records(workspace, source, staged, kept, missing)
    settlement.settle_readmission(workspace, leaving)
    report.batches += 1
    report.deliveries += len({delivery for delivery, _ in leaving.moved})
    report.rows_in += len(staged.records)
    report.rows_out += len(moved)
    report.suppressed += len(left_out)
    report.rescued += sum(leaving.rescued.values())


def _find_identifiable_records(staged: StagedFiles, parsed: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """Returns the records of files that gave as many records as were put into them: only then is it known which is which."""
    given = settlement.count_by_delivery(number for number, _ in parsed)
    put = settlement.count_by_delivery(number for number, _ in staged.records)
    return {key for key in staged.records if given.get(key[0]) == put[key[0]]}


def _append_readmitted_records(
    workspace: Workspace, source: Source, staged: StagedFiles, kept: DataFrame, keys: list[tuple[int, int]]
) -> None:
    """Appends records to bronze under the delivery, file and row that they had."""
    named = [(*key, record.delivery, record.file, record.row) for key in keys for record in (staged.records[key],)]
    ddl = "_delivery BIGINT, _row BIGINT, delivery BIGINT, file STRING, row BIGINT"
    joined = kept.join(F.broadcast(table_creation.make_inline_frame(workspace.session, named, ddl)), list(PROVENANCE))
    own = {"_delivery": "delivery", "_file": "file", "_row": "row"}
    columns = [name for name in kept.columns if name not in ("_problem", "_record")]
    rows = joined.select(*(quote_column(own.get(name, name)).alias(name) for name in columns))
    table_shape.widen_bronze_columns(workspace, source, rows.schema)
    commits.append_rows(rows, workspace.path(source.name), None)
