"""A person in another person's record: when that person is erased the cell becomes NULL, and the record stays (`Source(also_subjects=)`).

The list of erased people decides on a cell as it does on a subject: in the form of its domain, and by the time of the record. Bronze marks
the rows, so that tables are folded again from them, and landed files are rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluice.declare.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARK = "_sluice_without_others"
"""The column of bronze that says so. It comes with the first such row."""
RESCUED, RECORD = "_rescued_data", "_record"
_HELD = "_sluice_held_"


def subject_text_in_cell(frame: DataFrame, column: str) -> Column:
    """The person in a cell, as text: from its column, from rescued data, or from a text that could not be read, beside its name."""
    name = next((one for one in frame.columns if one.lower() == column.lower()), None)
    found = [F.col(f"`{name}`").cast("string")] if name else []
    found += [F.get_json_object(RESCUED, f"$.{column}")] if RESCUED in frame.columns else []
    if RECORD in frame.columns:
        pattern = f'"{column}"\\s*:\\s*"?([^",}}\\s]+)'
        found.append(F.nullif(F.regexp_extract(RECORD, pattern, 1), F.lit("")))
    return F.coalesce(*found, F.lit(None).cast("string"))


def erased_cell_flag(column: str) -> str:
    """The column that says whether that cell of a row holds an erased person."""
    return f"{_HELD}{column}"


def empty_flagged_cells(frame: DataFrame, cells: Mapping[str, str]) -> DataFrame:
    """The frame with NULL in flagged cells and without the flags. Rescued data of such a cell goes too."""
    made: dict[str, Column] = {}
    for field in frame.schema:
        of = [name for name in cells if name.lower() == field.name.lower()]
        if of:
            made[field.name] = F.when(~F.col(erased_cell_flag(of[0])), F.col(f"`{field.name}`")).cast(field.dataType)
    if RESCUED in frame.columns:
        inside = is_any_true([
            F.col(erased_cell_flag(name)) & F.get_json_object(RESCUED, f"$.{name}").isNotNull() for name in cells
        ])
        made[RESCUED] = F.when(~inside, F.col(RESCUED))
    return frame.withColumns(made).drop(*map(erased_cell_flag, cells))


def is_any_true(conditions: list[Column]) -> Column:
    """Whether any of the columns is true; none of them is NULL."""
    found = F.lit(False)
    for one in conditions:
        found |= F.coalesce(one, F.lit(False))
    return found
