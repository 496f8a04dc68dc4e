"""A personal column is personal in whichever case it is declared: to Spark, upper and lower case are one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql.types import DateType, LongType, StructField, StructType

from sluice.flows.writing import targets
from sluice.runs.copies import cloning
from sluice.settings import Settings


def test_a_key_without_stand_ins_is_not_cloned(settings: Settings) -> None:
    path = f"{settings.lake}/visits"
    write_deltalake(path, pa.table({"Born": pa.array([0], pa.date32())}))
    kept: Any = SimpleNamespace(serves=None)
    table = cloning.TableToClone("visits", path, 0, kept, frozenset({"born"}), ("Born",))
    assert "its key 'Born' (" in str(cloning._explain_uncloned_table(settings, table, "deep"))


def test_a_personal_key_bounds_no_files() -> None:
    """Its values would stand in plans and in the table's history."""
    schema = StructType([StructField("Born", DateType()), StructField("number", LongType())])
    dataset: Any = SimpleNamespace(keys=("Born", "number"), private=frozenset({"born"}), partition_by=())
    assert targets.choose_bounding_columns(dataset, schema).columns == ["number"]
