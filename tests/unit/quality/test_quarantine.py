"""Which columns of a quarantine may be shown: each is either harmless or may hold personal data."""

from __future__ import annotations

from sluice.cli.repair.quarantine import PLAIN
from sluice.cli.tables.read import select_printable_columns
from sluice.pipeline_records import PERSONAL_IN_QUARANTINE, QUARANTINED_RECORD
from sluice.quality import quarantine

COLUMNS = [field.split()[0] for field in quarantine.SCHEMA.split(", ")]


def test_each_column_of_a_quarantine_is_either_harmless_or_personal() -> None:
    assert len(COLUMNS) == len(set(COLUMNS)) == len(PLAIN) + len(PERSONAL_IN_QUARANTINE)
    assert set(COLUMNS) == set(PLAIN) | PERSONAL_IN_QUARANTINE


def test_a_record_and_whose_it_is_are_not_printed() -> None:
    assert set(QUARANTINED_RECORD) == {"record", "made", "content"}
    assert PERSONAL_IN_QUARANTINE - set(QUARANTINED_RECORD) == {"_subject"}
    assert set(select_printable_columns(COLUMNS, "visit_quarantine")) == set(PLAIN)
    assert select_printable_columns(COLUMNS, "visit") == COLUMNS, "a table of its own may have columns with these names"
