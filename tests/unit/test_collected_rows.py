"""What the driver collects: nothing that grows with the rows of tables or files. Each place that collects has its bound here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.conftest import ROOT

COLLECTING = {"collect", "toArrow", "toPandas", "toLocalIterator", "to_pandas", "to_pyarrow_table", "query_rows"}
"""Methods of frames and open tables that bring rows to the process that calls them."""
READING = {"read_snapshot_rows"}
"""Functions that do."""

BATCH = "a number for each delivery of a batch, or of what a command names; no value of a row"
PEOPLE = "identifiers of people who are being erased, or who asked for it"
SOUGHT = "ids of records of people who are being erased, in files of 256 MB together (landed_files._TOGETHER)"
RECORDS = "Sluice's own records, which grow with runs or deliveries: some hundred bytes each (docs/scale.md)"
SHOWN = "what a command shows: its limit, or an aggregate that its user wrote"
FEW = "rows that are counted first: MOST_ROWS and MOST_ROW_BYTES, or MOST_APPENDED_ROWS, of lake/small_writes.py"
ENTRIES = "MOST_ENTRIES or MOST_RECORDS of a quarantine (flows/quarantine/readmission.py)"
ONE = "one row, or one for each of a fixed few"
TESTED = "rows of a test"

BOUNDS = {
    "sluice.autoload.autoload_target:find_autoload_target": ONE,
    "sluice.cli.tables.read:query_delta_table": SHOWN,
    "sluice.open_tables:TableSnapshot.read_columns": "its callers read records; those of others are in this list",
    "sluice.open_tables:TableSnapshot.read_rows": "its callers are in this list",
    "sluice.entries:_read_last_entry": ONE,
    "sluice.erasure.asking:_read_requester_deliveries": PEOPLE,
    "sluice.erasure.aging:_find_old_late_runs": RECORDS,
    "sluice.erasure.erasure_ledger:has_repeated_requests": ONE,
    "sluice.erasure.aging:_read_starts_of_runs": RECORDS,
    "sluice.erasure.request_reversal:_is_propagation_begun": PEOPLE,
    "sluice.erasure.steps.landing:_add_named_text_fields": "one partition after the other, of files of 256 MB together",
    "sluice.erasure.steps.landing:_find_other_subject_fields": SOUGHT,
    "sluice.erasure.steps.landing:_find_suppressed_records": SOUGHT,
    "sluice.erasure.erasure_ledger:list_begun_requests": PEOPLE,
    "sluice.erasure.steps.rows:note_rows": BATCH,
    "sluice.erasure.subjects.link_rows:LinkRows._found": PEOPLE,
    "sluice.erasure.subjects.link_rows:find_pseudonym_originals": PEOPLE,
    "sluice.erasure.subjects.link_rows:LinkRows.spellings": PEOPLE,
    "sluice.flows.bronze.accounting:_count_rows_by_delivery": BATCH,
    "sluice.flows.bronze.append:ingest_delivery_batch": "deliveries without an outcome: max_files_per_trigger of each source",
    "sluice.flows.bronze.intake:_count_good_and_bad": ONE,
    "sluice.flows.bronze.intake:_find_written_deliveries": BATCH,
    "sluice.flows.bronze.left_out_records:LeftOutRecords._blank_erased_cells": BATCH,
    "sluice.flows.bronze.left_out_records:_count_by_delivery": BATCH,
    "sluice.flows.copies.restoration:find_unreachable_erasures": PEOPLE,
    "sluice.flows.quarantine.readmission:_admit_fitting_records": ENTRIES,
    "sluice.flows.quarantine.readmission:_collect_entries": ENTRIES,
    "sluice.flows.quarantine.readmission:_find_quarantined_entries": BATCH,
    "sluice.flows.quarantine.readmission:_replay_records": ENTRIES,
    "sluice.flows.quarantine.readmission:_replay_whole_files": BATCH,
    "sluice.flows.quarantine.settlement:find_entries_in_bronze": ENTRIES,
    "sluice.flows.silver.table_quarantine:quarantine_scope_rows": BATCH,
    "sluice.flows.silver.table_quarantine:requarantine_rows": BATCH,
    "sluice.flows.silver.refold:_list_deliveries": BATCH,
    "sluice.flows.silver.delivery_scope:find_batch_scope": "outcomes of a batch: a name and a number for each delivery",
    "sluice.flows.writing.difference:_collect_few_operations": FEW,
    "sluice.flows.writing.difference:apply_merge_operations": FEW,
    "sluice.ingest.reading.records:_read_by_workers": BATCH,
    "sluice.lake.table_frames:compute_aggregates": ONE,
    "sluice.lake.commits:_collect_rows": FEW,
    "sluice.lake.batch_sizes:collect_few_rows": "one row more than its caller allows, each of at most its share of some bytes",
    "sluice.lake.arrow_to_python:_collect_values_or_texts": SHOWN,
    "sluice.lake.arrow_to_python:collect_rows_with_texts": SHOWN,
    "sluice.privacy.anonymised:count_marked_rows": ONE,
    "sluice.privacy.anonymised:find_marked_deliveries": BATCH,
    "sluice.privacy.suppression_list:read_listed_values": PEOPLE,
    "sluice.lake.releases:are_releases_absent": ONE,
    "sluice.lake.restricted_tables:find_absent_restricted_tables": "one row for each table",
    "sluice.privacy.suppression_list:read_suppression_times": PEOPLE,
    "sluice.quality.quarantine:replace_rejudged_quarantine_rows": BATCH,
    "sluice.runs.run_ledger:read_delivery_ledger": RECORDS,
    "sluice.runs.run_ledger:read_run_ledger": RECORDS,
    "sluice.runs.run_ledger:read_table_rows": RECORDS,
    "sluice.runs.repair.lost_contents:_query_version": "its callers take the numbers of deliveries, and requests, each once",
    "sluice.runs.status.reconciliation:_find_differing_deliveries": BATCH,
    "sluice.testing.running:_collect_rows": TESTED,
    "sluice.testing.running:TrialRun.read_given_rows": TESTED,
    "sluice.optimize:_rewrite_all_files": ONE,
    "sluice.verification.change_targets:_collect_sequences": "the numbers of snapshots, and of changes that empty a table",
}
"""By function, what bounds the rows that it brings to the driver."""


def find_collecting_functions(tree: ast.AST, function: str = "") -> Iterator[str]:
    """The functions that collect rows, those of a class as Class.method; "" for code outside of any."""
    for node in ast.iter_child_nodes(tree):
        inside = function
        if isinstance(node, ast.ClassDef):
            inside = f"{node.name}."
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside = f"{function}{node.name}" if function.endswith(".") else node.name
        if isinstance(node, ast.Call):
            called = node.func
            if (isinstance(called, ast.Attribute) and called.attr in COLLECTING) or (
                isinstance(called, ast.Name) and called.id in READING
            ):
                yield inside
        yield from find_collecting_functions(node, inside)


def test_whatever_brings_rows_to_the_driver_has_a_bound() -> None:
    found = set()
    for path in sorted((ROOT / "include" / "sluice").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "include").with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {f"{module}:{function}" for function in find_collecting_functions(tree)}
    assert not found - BOUNDS.keys(), "Leave the rows with the executors, or say in BOUNDS what bounds them."
    assert not BOUNDS.keys() - found, "These collect nothing any more: take them out of the list."


@pytest.mark.parametrize("line", ["frame.collect()", "frame.limit(2).toArrow()", "read_snapshot_rows(path)", "table.to_pandas()"])
def test_what_is_looked_for_is_found(line: str) -> None:
    assert list(find_collecting_functions(ast.parse(f"def one():\n    def two():\n        {line}"))) == ["two"]
    assert list(find_collecting_functions(ast.parse(f"class One:\n    def two(self):\n        {line}"))) == ["One.two"]
    assert not list(find_collecting_functions(ast.parse("def one():\n    collect(frame)\n    read_rows")))
