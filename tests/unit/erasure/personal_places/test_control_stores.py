"""The stores that the canary is planted in: the scan finds it in each, and whichever part of the scan is blind, in one of them it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import residue
from residue import delimited_rows, inspection, needles, opening, parts, spellings
from residue.decoders import columnar, databases, state_rows
from sluice.erasure import canary
from sluice.erasure.personal_places.place import CanaryMarks
from sluice.locations import Location, locate


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CanaryMarks]:
    folder, marks = tmp_path_factory.mktemp("canary"), CanaryMarks.by_chance()
    canary.plant_control_stores(folder, marks, "7 days")
    return folder, marks


def _blind(planted: tuple[Location, CanaryMarks]) -> list[str]:
    """The stores of the canary in which it is not found."""
    folder, marks = planted
    found = residue.scan_roots(
        [residue.ScanRoot("canary", str(folder))],
        [],
        needles.build_needles(canary._list_marked_values(marks), canary._COLUMNS),
        processes=1,
    )
    assert not found.of_person()
    return [store for store, times in canary.count_hits_by_store(found.hits, "").items() if not times]


def test_the_stores_that_the_canary_is_planted_in_are_found_each_by_its_decoder(
    planted: tuple[Path, CanaryMarks],
) -> None:
    assert _blind(planted) == []
    root = residue.ScanRoot("canary", str(planted[0]))
    # A short one, too: rows of a state store whose columns nothing tells would be told of.
    wanted = needles.build_needles([("user_id", "7000000001"), ("member", "12140")], {"member": {"member"}})
    assert not residue.scan_roots([root], wanted, processes=1).unread


def test_they_are_found_in_the_same_way_on_a_store(planted: tuple[Path, CanaryMarks], bucket_url: str) -> None:
    folder, marks = locate(f"{bucket_url}/lake/gym/_sluice/canary/c"), planted[1]
    canary.plant_control_stores(folder, marks, "7 days")
    assert _blind((folder, marks)) == []
    wanted = needles.build_needles([("user_id", "7000000001"), ("member", "12140")], {"member": {"member"}})
    assert not residue.scan_roots([residue.ScanRoot("canary", str(folder))], wanted, processes=1).unread


def _nothing(*given: object, **named: object) -> Iterator[bytes]:
    return iter(())


WHAT_FINDS = {
    **{f"stream {name}": (opening._STREAMS, name) for name in opening._STREAMS if name != "hadoop lz4"},
    **{f"columns {name}": (opening._COLUMNAR, name) for name in opening._COLUMNAR},
    "rocksdb table": (databases, "read_rocksdb_table"),
    "rocksdb log": (databases, "read_rocksdb_log"),
    "state rows": (state_rows, "search_state_rows"),
    "sqlite": (databases, "search_sqlite_database"),
    "tar": (opening, "_search_tar_archive"),
    "zip": (opening, "_search_zip_archive"),
    "numbers": (inspection.Inspection, "numbers"),
    "cells": (columnar, "open_column_cells"),
    "short values in cells": (inspection.Inspection, "_count_short_values_in_cells"),
    "short values beside a name": (inspection.Inspection, "_belongs_to_any"),
    "short values in rows": (delimited_rows.DelimitedRows, "holds"),
    "wide text": (parts, "_search_transcoded_text"),
    "dictionaries": (columnar, "search_parquet_dictionary"),
    "escapes": (spellings, "resolve_escape_levels"),
    "base64 in lines": (spellings, "join_base64_lines"),
}


@pytest.mark.parametrize("what", WHAT_FINDS)
def test_whatever_part_of_the_scan_is_blind_some_store_of_the_canary_is_not_found(
    what: str, planted: tuple[Path, CanaryMarks], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name = WHAT_FINDS[what]
    if isinstance(where, dict):
        monkeypatch.setitem(where, name, _nothing)
    else:
        nothing = _nothing if where is databases or name == "resolve_escape_levels" else lambda *given, **named: None
        monkeypatch.setattr(where, name, nothing)
    assert _blind(planted)
