"""The rows of a view as its transform makes them: with verdicts, their personal columns treated, in the declared columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sluice.declare.datasets.tables import MaterializedView
from sluice.flows.writing import enforced, targets
from sluice.privacy import treatments
from sluice.quality import verdicts
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_view_columns(view: MaterializedView[Any], rows: DataFrame) -> StructType:
    """The columns that the transform's rows have when they are stored. Raises DeclarationError where they are not those that are declared."""
    enforced.check_declared_schema(view, rows.schema)
    stored = treat_view_rows(None, view, rows).schema
    targets.check_declared_columns(view, stored)
    return stored


def judge_view_rows(view: MaterializedView[Any], rows: DataFrame) -> DataFrame:
    """The transform's rows with verdicts."""
    return verdicts.add_verdict_column(rows, view.expectations)


def treat_view_rows(settings: Settings | None, view: MaterializedView[Any], rows: DataFrame) -> DataFrame:
    """Rows as they are stored. settings: None where only the columns matter."""
    return treatments.apply_treatments(settings, rows, view.treatments, view.label)
