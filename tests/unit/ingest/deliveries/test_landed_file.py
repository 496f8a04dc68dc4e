"""Names of files in the ledger: each belongs to one file, and leads back to it."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sluice.ingest.deliveries.landed_file import (
    escape_file_name,
    find_known_name,
    resolve_landed_path,
    unescape_file_name,
)
from sluice.locations import locate

PIECES = [
    b"\\",
    b"x",
    b"\\x",
    b"5",
    b"c",
    b"5cx",
    b"f",
    b"e9",
    b"\\xff",
    b"\\x5cx",
    b"\xff",
    b"\xe9",
    b"\xc3",
    "\xe9".encode(),
    b"/",
]
NAMES = st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)


@given(NAMES)
def test_what_is_written_of_a_name_leads_back_to_it(name: bytes) -> None:
    """So no two names are written alike."""
    written = escape_file_name(os.fsdecode(name))
    assert os.fsencode(unescape_file_name(written)) == name


def test_only_what_looks_like_an_escape_is_written_in_another_way() -> None:
    for name in ("a\\x41", "a\\xg0", "a\\x", "\\xFF", "\xe9\\x41"):
        assert escape_file_name(name) == name, "an older ledger has it so"
    assert escape_file_name("a\\xff") == "a\\x5cxff"


def _land_twins(folder: Path) -> tuple[Path, Path]:
    literal, raw = folder / "a\\xff", Path(os.fsdecode(os.fsencode(folder) + b"/a\xff"))
    for path in (literal, raw):
        path.touch()
    return literal, raw


def test_two_files_whose_names_were_once_written_alike_are_told_apart(tmp_path: Path) -> None:
    literal, raw = _land_twins(tmp_path)
    folder = locate(str(tmp_path))
    assert resolve_landed_path(folder, "a\\xff") == raw
    assert resolve_landed_path(folder, "a\\x5cxff") == literal
    raw.unlink()
    assert resolve_landed_path(folder, "a\\xff") == literal, "as an older ledger means it"
    assert resolve_landed_path(folder, "a\\xff", {"a\\x5cxff"}) == raw, "so that it is noted as gone"


def test_a_file_keeps_the_name_that_an_older_ledger_gave_it(tmp_path: Path) -> None:
    literal, raw = _land_twins(tmp_path)
    name = "a\\x5cxff"
    assert find_known_name(name, str(literal), {"a\\xff"}) == name, "that may be the other one"
    raw.unlink()
    assert find_known_name(name, str(literal), {"a\\xff"}) == "a\\xff"
    assert find_known_name(name, str(literal), {"a\\xff", name}) == name
    assert find_known_name(name, str(literal), set()) == name
