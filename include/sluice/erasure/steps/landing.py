"""Rewrites landed and archived files without the records of erased people.

The reader that ingests a record and the suppression list decide whose it is: whatever an ingest would suppress is removed, and nothing
else. A file that nobody can read is removed as a whole if it names one of these people.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column
from sluice.erasure.steps import landed_files, naming
from sluice.erasure.steps.erased_names import ErasedNames
from sluice.erasure.steps.erasure_step import ErasureStep
from sluice.erasure.steps.landed_files import UnfinishedFiles
from sluice.errors import LeaseLost, SluiceError
from sluice.flows.bronze import append, intake
from sluice.flows.quarantine import settlement
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import known_files
from sluice.ingest.deliveries.absence import absent_folder_remedy, is_landing_folder_absent
from sluice.ingest.deliveries.listing import AT_REST
from sluice.ingest.files.delivered_bytes import UnreadableFile
from sluice.ingest.landing import rewriting
from sluice.ingest.landing.cleaning import ARCHIVE
from sluice.ingest.landing.rewriting import RewrittenFile
from sluice.ingest.reading import records
from sluice.ingest.reading.examination import Delivery, ExaminedDelivery, examine_deliveries
from sluice.ingest.reading.records import DeliveredRecords
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun
from sluice.privacy import anonymised, suppression, suppression_list
from sluice.record_states import DELIVERED, MISSED, QUARANTINED, RETURNED, REWRITTEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTEMPTS = 3
Emptied = dict[int, dict[int, frozenset[str]]]


def rewrite_landed_files(step: ErasureStep) -> None:
    """Rewrites the files in every source's folder and archive. Raises SluiceError if a file could not be rewritten."""
    propagation, workspace = step.propagation, step.propagation.workspace
    rewriting.finish_rewriting_journals(settlement.rewriting_journal_folder(workspace), workspace.deliveries, workspace.run)
    for source in workspace.graph.sources.values():
        if source.subject and source.domain and source.kind.in_files and not step.is_done(source.name):
            found = rewrite_source_files(workspace, source, naming.load_erased_names(propagation))
            said = [f"{count_noun(found.files, 'landed file')} rewritten"]
            if found.whole:
                said.append(f"{found.whole} of them removed as a whole: they name somebody, and nothing reads them")
            propagation.reports += [FlowReport(f"{source.name}_landing", DELETIONS.name, notes=said)] if found.files else []
            step.record_done(source.name, found.rows, found.files)
    propagation.reports += _remove_versions_of_rewritten_files(workspace)


def _remove_versions_of_rewritten_files(workspace: Workspace) -> list[FlowReport]:
    """Removes what a bucket keeps of rewritten files. A refusal holds up no other step: it is noted here, and fails the physical erasure."""
    report = FlowReport(flow="former_versions", layer=DELETIONS.name)
    try:
        report.deleted = rewriting.remove_versions_of_rewritten_files(settlement.rewriting_journal_folder(workspace))
    except LeaseLost:
        raise
    except SluiceError as refused:
        report.notes.append(str(refused))
    return [report] if report.deleted or report.notes else []


def rewrite_redelivered_files(workspace: Workspace) -> list[FlowReport]:
    """Rewrites redelivered files with records of people on the list: the ingest left the records out, but the files have them."""
    if suppression_list.is_suppression_list_empty(workspace):
        return []
    waiting = _find_redelivered_files(workspace)
    reports = []
    for name, files in waiting.items():
        rows, count, _ = rewrite_source_files(workspace, workspace.graph.sources[name], ErasedNames(), files)
        said = f"{count_noun(count, 'landed file')} rewritten, which had {count_noun(rows, 'record')} of people who were erased"
        reports += [FlowReport(f"{name}_landing", DELETIONS.name, notes=[said])] if count else []
    return reports + _remove_versions_of_rewritten_files(workspace)


def _find_redelivered_files(workspace: Workspace) -> dict[str, set[str]]:
    """By source, the unchanged files from whose last delivery something was left out."""
    last = delivery_tables.read_last_outcomes(workspace.outcomes, ["suppressed"])
    outcomes = {number: int(row["suppressed"] or 0) for number, row in last.items()}
    for source in workspace.graph.sources.values():
        if anonymised.keeps_anonymised_facts(workspace.graph, source):
            # From these an ingest keeps the facts, and leaves nothing out.
            outcomes |= dict.fromkeys(anonymised.find_marked_deliveries(workspace.path(source.name)), 1)
        if subjects.find_other_subject_columns(workspace.graph, source):
            outcomes |= dict.fromkeys(anonymised.find_marked_deliveries(workspace.path(source.name), anonymised.CELL_MARK), 1)
    found: defaultdict[str, set[str]] = defaultdict(set)
    left_out: dict[tuple[str, str], bool] = {}
    told: list[dict[str, Any]] = delivery_tables.read_delivery_ledger_rows(
        workspace.deliveries, ["delivery", "source", "file", "event"]
    )
    for entry in delivery_tables.sort_deliveries_by_number(told):
        name, file, event = entry["source"], entry["file"], entry["event"]
        if event in (DELIVERED, REWRITTEN):
            left_out[name, file] = event == DELIVERED and bool(outcomes.get(entry["delivery"]))
        if event in (DELIVERED, RETURNED) and left_out.get((name, file)):
            found[name].add(file)
        else:
            found[name].discard(file)
    sources = workspace.graph.sources
    return {name: files for name, files in found.items() if files and name in sources and sources[name].kind.in_files}


class TakenOutCounts(NamedTuple):
    """How many records were removed, from how many files, and how many of those were removed whole because nobody can read them."""

    rows: int = 0
    files: int = 0
    whole: int = 0


def rewrite_source_files(
    workspace: Workspace, source: Source, names: ErasedNames, only: Collection[str] | None = None
) -> TakenOutCounts:
    """Rewrites a source's files. only: the names in the ledger of the files to rewrite."""
    append.create_bronze_tables(workspace, source)
    if only is None and is_landing_folder_absent(
        source, workspace.landing, known_files.read_known_files(workspace.deliveries).files_of_source(source.name)
    ):
        folder = workspace.landing / source.path
        raise SluiceError(
            f"Source '{source.name}': its landed files, from which people must be removed, are not there: {folder}. {absent_folder_remedy(folder)}"
        )
    done = TakenOutCounts()
    writing: set[str] = set()
    for _ in range(_ATTEMPTS):
        found = _rewrite_files_once(workspace, source, names, only)
        done, only = TakenOutCounts(done.rows + found.rows, done.files + found.files, done.whole + found.whole), found.again
        writing |= found.writing
        if not only:
            break
    if not only and not writing:
        return done
    count = count_noun(len(writing), "file") if writing else "Files"
    raise SluiceError(
        f"{count} of source '{source.name}' are written to while people are being taken out of them. When its producer is at rest "
        f"(for a file that is not ready: {AT_REST // 60} minutes after its last change): "
        f"sluice run {workspace.pipeline} --stage {DELETIONS.name}"
    )


@dataclass
class _RewritePass:
    """One pass over a source's files. again: the files to look at once more, after a rewrite or change; writing: those that stay for now."""

    rows: int = 0
    files: int = 0
    whole: int = 0
    again: set[str] = field(default_factory=set)
    writing: set[str] = field(default_factory=set)


def _rewrite_files_once(workspace: Workspace, source: Source, names: ErasedNames, only: Collection[str] | None) -> _RewritePass:
    state = UnfinishedFiles(workspace, source, known_files.read_known_files(workspace.deliveries).files_of_source(source.name))
    done = _RewritePass()
    for some in landed_files.batch_deliveries_by_size(landed_files.list_landed_files(workspace, source, only)):
        looked, gone, emptied = _examine_landed_files(workspace, source, names, some)
        done.again |= {one.delivery.file for one in looked if one.state == MISSED and one.delivery.path.exists()}
        theirs = [one for one in looked if one.delivery.number in gone]
        stay = {one.delivery.number for one in theirs if state.has(one.delivery, _is_archived_file(workspace, one.delivery))}
        done.writing |= {one.delivery.file for one in theirs if one.delivery.number in stay}
        prepared: list[RewrittenFile] = []
        for one in (one for one in theirs if one.delivery.number not in stay):
            numbers = gone[one.delivery.number]
            cells = emptied.get(one.delivery.number, {})
            prepared += _prepare_file_rewrite(source, one, numbers, state.is_known(one.delivery), cells)
            done.whole += numbers is None
            done.rows += 1 if numbers is None else len(numbers) + len(set(cells) - set(numbers))
            done.again.add(one.delivery.file)
        done.files += rewriting.replace_rewritten_files(
            settlement.rewriting_journal_folder(workspace), workspace.deliveries, prepared, workspace.run
        )
    return done


def _is_archived_file(workspace: Workspace, delivery: Delivery) -> bool:
    return delivery.path.is_relative_to(workspace.landing / ARCHIVE)


def _examine_landed_files(
    workspace: Workspace, source: Source, names: ErasedNames, together: list[Delivery]
) -> tuple[list[ExaminedDelivery], dict[int, set[int] | None], Emptied]:
    """Examines files. Returns, by file number, the records to remove (None: the whole file), and the fields to empty."""
    columns = intake.current_source_columns(workspace, source)
    looked, found = intake.read_until_unchanged(workspace, source, columns, examine_deliveries(source, together))
    try:
        gone: dict[int, set[int] | None] = dict(_find_suppressed_records(workspace, source, names, found))
        emptied, unfit = _find_other_subject_fields(workspace, source, found)
        _add_named_text_fields(subjects.find_free_text_columns(workspace.graph, source), names, found, emptied)
    finally:
        found.release()
    whole = [one.delivery for one in looked if one.state == QUARANTINED]
    for number in {*emptied, *unfit}:
        gone[number] = {*(gone.get(number) or ()), *unfit[number]}
    return looked, gone | {one.number: None for one in whole if names.are_in(one.path)}, emptied


def _prepare_file_rewrite(
    source: Source, one: ExaminedDelivery, gone: Collection[int] | None, is_known: bool, emptied: Mapping[int, Collection[str]]
) -> list[RewrittenFile]:
    delivery = one.delivery
    try:
        return [rewriting.prepare_rewritten_file(source, delivery.file, delivery.path, gone, is_known, emptied)]
    except FileNotFoundError:
        return []
    except (UnreadableFile, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SluiceError(
            f"Source '{source.name}': people could not be removed from a landed file ({why}); it is {landed_files.describe_landed_file(delivery)}. "
            f"Remove or repair it, then run the stage {DELETIONS.name} again."
        ) from None


def _find_suppressed_records(
    workspace: Workspace, source: Source, names: ErasedNames, read: DeliveredRecords
) -> dict[int, set[int]]:
    """By file number, the records that an ingest would leave out, and unattributed ones that name somebody."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    if read.frame is not None:
        for row in _select_suppressed_rows(workspace, source, read.frame).select("_delivery", "_row").collect():
            found[row._delivery].add(row._row)
        dialect = source.row_dialect
        for row in _select_unattributed_records(source, read.frame).toLocalIterator() if names and read.problems else ():
            if names.are_in_record(row._record.encode(), dialect):
                found[row._delivery].add(row._row)
    return found


def _find_other_subject_fields(
    workspace: Workspace, source: Source, read: DeliveredRecords
) -> tuple[Emptied, defaultdict[int, set[int]]]:
    """By file and record number, the fields with an erased person who is not the record's subject.

    Also the records with such a person that do not fit into bronze, which an ingest leaves out.
    """
    cells = subjects.find_other_subject_columns(workspace.graph, source)
    found: Emptied = defaultdict(dict)
    unfit: defaultdict[int, set[int]] = defaultdict(set)
    if read.frame is None or not cells or suppression_list.is_suppression_list_empty(workspace):
        return found, unfit
    flagged = suppression.flag_suppressed_cells(
        workspace, read.frame, cells, suppression.row_instant_column(read.frame, source.subject_at)
    )
    flags = [F.col(anonymised.erased_cell_flag(name)) for name in cells]
    aside = F.col("_problem").isNotNull().alias("aside")
    for row in flagged.where(anonymised.is_any_true(flags)).select("_delivery", "_row", aside, *flags).collect():
        if row.aside:
            unfit[row._delivery].add(row._row)
        else:
            found[row._delivery][row._row] = frozenset(name for name in cells if row[anonymised.erased_cell_flag(name)])
    return found, unfit


def _add_named_text_fields(texts: Collection[str], names: ErasedNames, read: DeliveredRecords, emptied: Emptied) -> None:
    """Adds the free text fields that name somebody. texts: their columns. Searches in this process, so that no value gets into a plan."""
    if read.frame is None or not names:
        return
    here = [found for name in texts if (found := find_column_spelling(name, read.frame.columns))]
    if here:
        good = read.frame.where(F.col("_problem").isNull()).select(
            "_delivery", "_row", *(quote_column(name).cast("string") for name in here)
        )
        for row in good.toLocalIterator():
            named = {name for name in here if row[name] and names.are_in_record(row[name].encode())}
            if named:
                of_file = emptied[row._delivery]
                of_file[row._row] = of_file.get(row._row, frozenset()) | named


def _select_suppressed_rows(workspace: Workspace, source: Source, frame: DataFrame) -> DataFrame:
    subject = records.subject_key_column(source, frame.columns)
    at = suppression.row_instant_column(frame, source.subject_at)
    return suppression.select_suppressed_rows(workspace, frame, subject, source.domain, at)


def _select_unattributed_records(source: Source, frame: DataFrame) -> DataFrame:
    """Records that do not fit into bronze and do not say whose they are. Searched in this process, so that no value gets into a plan."""
    unsaid = records.subject_key_column(source, frame.columns).isNull()
    return frame.where(unsaid & F.col("_record").isNotNull()).select("_delivery", "_row", "_record")
