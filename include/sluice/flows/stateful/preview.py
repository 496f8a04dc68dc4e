"""What `sluice check --plans` says of a stream, before there is a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sluice.declare.datasets.windowed import Windowed
from sluice.flows.stateful import inputs, refusals
from sluice.flows.writing import targets
from sluice.lake.workspace import PROVENANCE
from sluice.privacy import treatments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def examined(session: SparkSession, stream: Windowed[Any], schemas: Mapping[str, StructType]) -> StructType:
    """The columns of a stream's table. schemas: those of its inputs as they are stored.

    Raises DeclarationError where Spark would not run it, where rows would be lost unseen, and where the declaration names other columns.
    """
    seen = {name: StructType([one for one in schemas[name] if one.name not in PROVENANCE]) for name in stream.reads}
    result = stream(*(inputs.marked(stream, name, inputs.empty(session, seen[name])) for name in stream.reads))
    refusals.check(stream, result)
    stored = treatments.applied(None, result, stream.treatments, f"Stream '{stream.name}'").schema
    targets.check_columns(stream, stored)
    return stored
