"""Treatments of personal columns before they are stored, as native expressions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.lazy_spark import TEXT_TYPES, WHOLE_NUMBER_TYPES, F
from sluice.declare.privacy.treat import Bin, DateToYear, Hmac, Null, Round, Treatment, Truncate
from sluice.declare.quoting import quote_column
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import PseudonymSpec, add_pseudonym_columns, key_check_values
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_NUMBERS = (*WHOLE_NUMBER_TYPES, "float", "double", "decimal")
_FIT: Mapping[type[Treatment], tuple[tuple[str, ...], str]] = {
    # A float has more than one text, and a timestamp's depends on the time zone: equal identifiers would get different pseudonyms.
    Hmac: (
        (*TEXT_TYPES, *WHOLE_NUMBER_TYPES, "decimal", "date"),
        "texts, whole numbers, decimals and dates; cast it in the transform",
    ),
    Truncate: (TEXT_TYPES, "texts; cast it in the transform"),
    Bin: (_NUMBERS, "numbers; for a birth date, compute the age in the transform"),
    Round: (_NUMBERS, "numbers"),
    DateToYear: (("date", "timestamp", "timestamp_ntz"), "dates and timestamps; cast it in the transform"),
}
_WORDS = {Hmac: "hmac", Null: "null", Truncate: "truncate", Bin: "bin", Round: "round", DateToYear: "date_to_year"}


def apply_treatments(
    settings: Settings | None, frame: DataFrame, treatments: Mapping[str, Treatment], owner: str = "A table"
) -> DataFrame:
    """Returns the frame with its personal columns treated, in the same order. owner: what they belong to, for messages.

    settings: None if only the columns matter, or if nobody's data is read; pseudonyms then use an empty key. Raises DeclarationError if
    a column does not exist, or has a type that its treatment does not fit.
    """
    check_treatments(frame.schema, treatments, owner)
    pseudonyms = {name: how for name, how in treatments.items() if isinstance(how, Hmac)}
    others = {name: _treated_column(name, how, frame.schema) for name, how in treatments.items() if name not in pseudonyms}
    rows = frame.withColumns(others) if others else frame
    if not pseudonyms:
        return rows
    keys = {how.secret: secrets.read_secret_key(settings, how.secret) if settings else b"" for how in pseudonyms.values()}
    wanted = {
        name: PseudonymSpec(keys[how.secret], how.domain, quote_column(name), how.canonical) for name, how in pseudonyms.items()
    }
    return add_pseudonym_columns(rows, wanted)


def check_treatments(schema: StructType, treatments: Mapping[str, Treatment], owner: str) -> None:
    """Raises DeclarationError where a treatment names no column of the rows, or a column of a type that it does not fit."""
    for name, how in treatments.items():
        if name not in schema.names:
            raise DeclarationError(f"{owner}: personal names '{name}', no column of it.{nearest_name_hint(name, schema.names)}")
        kinds, fit = _FIT.get(type(how), ((), ""))
        kind = schema[name].dataType
        if kinds and _type_name(kind) not in kinds:
            raise DeclarationError(
                f"{owner}: personal treats '{name}', which is {kind.simpleString().upper()}, by treat.{_WORDS[type(how)]}, "
                f"which is for {fit}."
            )


def name_treatment(how: Treatment) -> str:
    """What people call a treatment: `hmac`, `null`, `truncate` and so on."""
    return _WORDS[type(how)]


def treatment_key_marks(settings: Settings, dataset: Dataset[Any]) -> str:
    """What shows whether a table's pseudonyms are made with the same keys as before: "name=8 hex digits", with commas; "" without any."""
    names = {how.secret for how in dataset.treatments.values() if isinstance(how, Hmac)}
    return ",".join(key_check_values({name: secrets.read_secret_key(settings, name) for name in names}))


def _treated_column(name: str, how: Treatment, schema: StructType) -> Column:
    column, kind = quote_column(name), schema[name].dataType
    if isinstance(how, Truncate):
        return F.substring(column, 1, how.length)
    if isinstance(how, Bin):
        return _band_column(column, kind, how.edges)
    if isinstance(how, Round):
        return _rounded_column(column, kind, how.digits)
    if isinstance(how, DateToYear):
        year = F.trunc(column, "year") if _type_name(kind) == "date" else F.date_trunc("year", column)
        return year.cast(kind)
    return F.lit(None).cast(kind)


def _band_column(column: Column, kind: DataType, edges: tuple[int, ...]) -> Column:
    number = F.when(~F.isnan(column), column) if _type_name(kind) in ("float", "double") else column
    band = F.when(number < edges[0], f"<{edges[0]}")
    for low, next_one in itertools.pairwise(edges):
        band = band.when(number < next_one, f"{low}-{next_one - 1}" if next_one - low > 1 else str(low))
    return band.when(number >= edges[-1], f">={edges[-1]}")


def _rounded_column(column: Column, kind: DataType, digits: int) -> Column:
    """The rounded column in its own type; NULL if the rounded number is too large for it."""
    if _type_name(kind) in ("float", "double"):
        return F.round(column, digits) + F.lit(0.0).cast(kind)  # no -0.0, as in `flows.silver.judged_rows.replace_negative_zeros`
    exact = column.cast("decimal(20,0)") if _type_name(kind) in WHOLE_NUMBER_TYPES else column
    return F.round(exact, digits).try_cast(kind)


def _type_name(kind: DataType) -> str:
    return str(kind.typeName()).split("(")[0]
