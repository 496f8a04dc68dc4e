"""Rows that somebody else reads, such as those of a table as it is now: searched as the cells of files are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from residue.compiled import CompiledNeedles
from residue.decoders import columnar
from residue.inspection import Inspection
from residue.result import Needle, ScanResult, ScanRoot, TableClock

DECODER = "rows"


def scan_tables(
    tables: Mapping[str, str],
    read_batches: Callable[[str], Iterable[pa.RecordBatch]],
    needles: Sequence[Needle],
    clocks: Mapping[str, TableClock],
) -> ScanResult:
    """Search the rows of tables. tables: paths by name; read_batches: reads one by its path; clocks: by name, of those that have one.

    A hit's path is the table's name.
    """
    compiled, result = CompiledNeedles(needles, []), ScanResult()
    for name, path in sorted(tables.items()):
        clock = (replace(clocks[name], below=""),) if name in clocks else ()
        inspection = Inspection(compiled, ScanRoot(name, path, clocks=clock), name)
        try:
            for batch in read_batches(path):
                columnar.search_record_batch(batch, inspection, DECODER)
        except Exception as error:  # of any reader's making: a table that cannot be read is not known to be clean
            inspection.unread(f"the table cannot be read: {type(error).__name__}")
        inspection.add_to(result)
    return result
