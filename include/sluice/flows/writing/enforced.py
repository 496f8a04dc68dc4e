"""`schema=` enforced: what the transform gives must be what is declared, and the table itself refuses what slips by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from sluice.declare.datasets.tables import Dataset
from sluice.declare.sql.schema import SchemaText, split_schema_declaration
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.lake import tables
from sluice.lake.workspace import PROVENANCE


def check_declared_schema(dataset: Dataset[Any], given: StructType) -> None:
    """Raises DeclarationError, with all that differs, where the transform gives other columns than `schema=` says.

    given: what the transform gives, before treatments. Sluice's own columns, with an underscore, do not count.
    """
    text = _parse_schema_text(dataset)
    if text is None:
        return
    wanted = _parse_schema_columns(dataset, text)
    found = StructType([field for field in given if field.name in wanted.names or not _is_provenance_column(field.name)])
    mistakes = list(_describe_schema_differences(wanted, found))
    if mistakes:
        raise DeclarationError(f"{dataset.label}: " + "; ".join(mistakes) + ".")


def enforceable_schema(dataset: Dataset[Any], stored: StructType) -> tuple[StructType, dict[str, str]]:
    """The columns of a table with NOT NULL and comments, and the CHECKs by name: what of its `schema=` the stored rows can be held to.

    stored: the columns of the rows as they are stored. A treated column holds something else than its condition speaks of, and the rows
    of a change log are of another shape: of those the expectations speak alone.
    """
    text = _parse_schema_text(dataset)
    if text is None:
        return StructType([StructField(field.name, field.dataType, True) for field in stored]), {}
    declared = {field.name: field for field in _parse_schema_columns(dataset, text)}
    loose = set(declared) if getattr(dataset, "shape", None) else set(dataset.treatments)
    fields = []
    for field in stored:
        said = declared.get(field.name)
        nullable = said is None or said.nullable or field.name in loose
        fields.append(StructField(field.name, field.dataType, nullable, said.metadata if said else {}))
    return StructType(fields), {one.name: one.condition for one in text.checks if not one.columns & loose}


def declared_schema_columns(dataset: Dataset[Any]) -> StructType | None:
    """The columns that a `schema=` names. None where there is none."""
    text = _parse_schema_text(dataset)
    return _parse_schema_columns(dataset, text) if text else None


def constraint_refusal_text(pipeline: str, dataset: Dataset[Any], bad: Mapping[str, int]) -> str:
    """Why a table that is there does not get the constraints of its `schema=`, and the remedy. bad: by constraint, how many rows."""
    name = max(bad, key=lambda one: bad[one])
    then = " and sets such rows aside" if dataset.kind.sets_rows_aside else ""
    return (
        f"{dataset.label}: schema= now says '{name}', which {bad[name]} rows of the table do not meet. Nothing was changed. Correct "
        f"schema=, or make the table anew, which judges every row again{then}: sluice run {pipeline} --mode refresh --table {dataset.name}."
    )


def _parse_schema_text(dataset: Dataset[Any]) -> SchemaText | None:
    return split_schema_declaration(dataset.schema, dataset.label) if dataset.schema is not None else None


def _parse_schema_columns(dataset: Dataset[Any], text: SchemaText) -> StructType:
    try:
        return tables.parse_ddl_schema(text.ddl)
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise DeclarationError(f"{dataset.label}: schema= is not understood by Spark: {reason}") from None


def _describe_schema_differences(wanted: StructType, given: StructType) -> Iterator[str]:
    for field in wanted:
        kind = field.dataType.simpleString()
        if field.name not in given.names:
            yield f"schema= names the column '{field.name}' ({kind}), which its transform does not give.{nearest_name_hint(field.name, given.names)}"
        elif given[field.name].dataType.simpleString() != kind:
            is_now = given[field.name].dataType.simpleString()
            yield f"schema= says that its column '{field.name}' is {kind}, its transform gives {is_now}: cast it there, or correct schema="
    for field in given:
        if field.name not in wanted.names:
            yield (
                f"its transform gives the column '{field.name}' ({field.dataType.simpleString()}), which schema= does not name: "
                "add it there, or leave it out of the transform"
            )


def _is_provenance_column(name: str) -> bool:
    return name in PROVENANCE
