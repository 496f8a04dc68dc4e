"""Whether a query returns the person: every table as it is now, read by delta-rs, which no flow and no erasure writes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from deltalake import QueryBuilder

from sluice.delta_log import opened_table
from sluice.erasure.scan import Clock, Needle, Root, ScanResult
from sluice.erasure.scan.compiled import Compiled
from sluice.erasure.scan.decoders import columnar
from sluice.erasure.scan.inspection import Inspection


def returned(tables: Mapping[str, str], needles: Sequence[Needle], clocks: Mapping[str, Clock]) -> ScanResult:
    """What the current rows of the tables hold of the person. tables: paths by name; clocks: by name, of those that have one.

    A hit's path is the table's name.
    """
    compiled, result = Compiled(needles, []), ScanResult()
    for name, path in sorted(tables.items()):
        clock = (replace(clocks[name], below=""),) if name in clocks else ()
        inspection = Inspection(compiled, Root(name, path, clocks=clock), name)
        try:
            for batch in QueryBuilder().register("t", opened_table(path)).execute("SELECT * FROM t"):
                columnar.values_of(pa.record_batch(batch), inspection, "rows")
        except Exception as error:  # of any engine's making: a table that cannot be read is not known to be clean
            inspection.unread(f"the table cannot be read: {type(error).__name__}")
        inspection.add_to(result)
    return result
