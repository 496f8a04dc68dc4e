"""Tells whether a column that a silver table reads got another type in bronze, after rows were made from it.

What the transform makes of a value may depend on the type: the text of the number 1 is '1' as a BIGINT and '1.0' as a DOUBLE. Rows that are
made from now on would get other keys and texts than those that are there, so the table is folded anew. Needs no JVM.
"""

from __future__ import annotations

from sluice import delta_log
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.lake import log


def reason_if_retyped(folder: str, flow: str, source: str, path: str) -> str | None:
    """Returns why a flow must fold anew, or None if the columns that it reads have the types that its rows were made from.

    A flow of an earlier Sluice has recorded no types, and then nothing is known. path: the bronze table's.
    """
    memory = read_flow_memory(folder, flow)
    types = memory.read_types.columns if memory is not None else {}
    if not types or not delta_log.is_delta_table(path):
        return None
    there = log.read_column_types(path)
    differing = [name for name, kind in types.items() if name in there and there[name] != kind]
    return next((why for name in differing if (why := _describe_retyping(source, name, types[name], there[name]))), None)


def _describe_retyping(source: str, column: str, before: object, now: object) -> str | None:
    """Returns what happened to a column, or None if its type only has more nested fields, or NULL in more places."""
    from pyspark.sql.types import StructType  # loaded here, so that a status without such a column does not wait for it

    from sluice.lake.nested_types import has_other_type

    was, got = (
        StructType.fromJson({"fields": [{"name": column, "type": kind, "nullable": True, "metadata": {}}]})[column].dataType
        for kind in (before, now)
    )
    if not has_other_type(was, got):
        return None
    return f"column '{column}' of '{source}' was {was.simpleString()} and is {got.simpleString()}"
