"""Stand-ins for identifiers in a copy that names nobody: of the same type, the same wherever a value occurs, by a key that nobody keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.privacy.pseudonyms import PseudonymSpec, add_pseudonym_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

TYPES = ("string", "integer", "long")
"""The types that there are stand-ins of."""

_DOMAIN = "sluice: a stand-in"
_WHOLE_NUMBER = "^(0|-?[1-9][0-9]{0,17})$"
_DIGITS = 15
"""Hex digits of a stand-in that is a number: 60 bits, so that two of a hundred million are hardly ever the same."""


def replace_with_stand_ins(frame: DataFrame, key: bytes, columns: Sequence[str]) -> DataFrame:
    """The frame with stand-ins in these columns. A text that is a whole number stays one, so that casts and joins go on working.

    An INT has 31 bits, so among a hundred thousand values some two get the same stand-in; see `collisions`.
    """
    if not columns:
        return frame
    temporary = {name: f"_stand_in_{number}" for number, name in enumerate(columns)}
    hashed = add_pseudonym_columns(
        frame, {made: PseudonymSpec(key, _DOMAIN, _exact_text(name)) for name, made in temporary.items()}
    )
    kinds = {field.name: field.dataType for field in frame.schema}
    made = {name: _stand_in_of_type(F.col(made), F.col(f"`{name}`"), kinds[name]) for name, made in temporary.items()}
    return hashed.select(*(made.get(name, F.col(f"`{name}`")).alias(name) for name in frame.columns))


def _exact_text(name: str) -> Column:
    """A text that differs for every value, even for values that differ only in blanks."""
    return F.concat(F.lit("x"), F.hex(F.encode(F.col(f"`{name}`").cast("string"), "UTF-8")))


def _stand_in_of_type(digits: Column, value: Column, kind: DataType) -> Column:
    number = F.conv(F.substring(digits, 1, _DIGITS), 16, 10).cast("bigint")
    if kind.typeName() == "long":
        return number
    if kind.typeName() == "integer":
        return F.pmod(number, F.lit(2**31 - 1).cast("bigint")).cast("int")
    return F.when(value.rlike(_WHOLE_NUMBER), number.cast("string")).otherwise(F.substring(digits, 1, 32))
