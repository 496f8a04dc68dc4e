"""Removes what names erased people and nothing attributes to anybody: entries of quarantines that nobody could read.

It needs the identifiers themselves, from the vault; they stay in this process. Identifiers that belonged to others at other times are ignored,
since nothing here shows a time.
"""

from __future__ import annotations

from typing import Any

from sluice.declare.ingest.file_formats import CsvDialect
from sluice.erasure import vault
from sluice.erasure.canary import PREFIX
from sluice.erasure.request_events import name_erasure_flow
from sluice.erasure.steps import subject_tables
from sluice.erasure.steps.erased_names import ErasedNames, index_erased_names
from sluice.erasure.steps.erasure_step import ErasureStep, Propagation
from sluice.erasure.subjects import domain_columns
from sluice.lake.flow_report import FlowReport
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_stages import DELETIONS
from sluice.quality import quarantine


def load_erased_names(propagation: Propagation) -> ErasedNames:
    """The people of the requests that are carried out, as far as the vault still knows them."""
    records = propagation.workspace.records
    known = [
        one
        for request in propagation.waiting
        if vault.has_vault_entry(records, request.request)
        for one in vault.read_vault_identifiers(records, request.request)
        if not one.domain.startswith(PREFIX)
    ]
    handed_on = {(one.domain, one.value) for one in known if one.since or one.until}
    own = {(one.domain, one.value) for one in known} - handed_on
    columns = domain_columns.columns_by_domain(propagation.workspace.lake)
    return index_erased_names(
        (value for _, value in own),
        ((name, value) for domain, value in own for name in columns.get(domain, {domain})),
        {source.encoding for source in propagation.workspace.graph.sources.values()},
        [value for domain, value in own if propagation.workspace.graph.canonical(domain) == "digits"],
    )


def erase_unattributed_quarantine(step: ErasureStep) -> None:
    """Removes unattributed quarantine entries that name an erased person: ragged records, and whole files.

    If a record may hold people other than its subject (`also_subjects`), also removes entries that are attributed to somebody else.
    """
    propagation, workspace, looked_for = step.propagation, step.propagation.workspace, load_erased_names(step.propagation)
    for table in subject_tables.find_subject_quarantines(workspace):
        if not step.is_done(table.name):
            entries = _find_naming_entries(table, looked_for) if looked_for else []
            workspace.mark_next_commits(name_erasure_flow(table.name), sorted({delivery for delivery, _ in entries}))
            quarantine.remove_quarantine_entries(workspace.session, table.path, entries)
            report = FlowReport(flow=table.name, layer=DELETIONS.name, deleted=len(entries), rows_out=len(entries))
            propagation.reports += [report] if entries else []
            step.record_done(table.name, rows=len(entries))


def _find_naming_entries(table: subject_tables.SubjectTable, looked_for: ErasedNames) -> list[quarantine.QuarantinedRow]:
    """Reads part by part without a JVM, so that no value gets into a plan."""
    # A subject with a backslash is not reliable: older lakes have it from records that were cut off.
    wanted = 'SELECT "_delivery", "_row", "record", "made", "content" FROM t WHERE "_subject" IS NULL OR strpos("_subject", chr(92)) > 0'
    if table.others:
        wanted = wanted.partition(" WHERE ")[0]
    found = []
    for batch in open_table_snapshot(table.path).query_batches(wanted):
        rows: list[dict[str, Any]] = batch.to_pylist()
        found += [(int(row["_delivery"]), row["_row"]) for row in rows if _has_erased_name(row, looked_for, table.dialect)]
    return sorted(set(found), key=repr)


def _has_erased_name(row: dict[str, Any], looked_for: ErasedNames, dialect: CsvDialect | None) -> bool:
    texts = (row[name].encode() for name in ("record", "made") if row[name])
    return any(looked_for.are_in_record(text, dialect) for text in texts) or (
        bool(row["content"]) and looked_for.are_in_content(bytes(row["content"]))
    )
