"""The formats of files: each has a record, and a module with all that is done with its files."""

from __future__ import annotations

import importlib
from typing import get_args

import pytest

from sluice.declare import Source
from sluice.declare.ingest.file_formats import FILE_FORMATS, FormatName
from sluice.errors import DeclarationError

MODULES = sorted({module for one in FILE_FORMATS.values() for module in (one.module, one.document_module) if module is not None})


def test_the_names_that_a_source_takes_are_those_of_the_records() -> None:
    assert get_args(FormatName) == tuple(FILE_FORMATS)
    with pytest.raises(DeclarationError, match=r"unknown format 'jason'\. Did you mean 'json'\?"):
        Source(name="orders", format="jason")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODULES)
def test_each_module_of_a_format_reads_examines_and_rewrites(name: str) -> None:
    module = importlib.import_module(f"sluice.ingest.formats.{name}")
    for function in ("read_format_records", "examine_format_content", "write_remaining_records"):
        assert getattr(module, function).__module__ == module.__name__
