"""What becomes of personal columns before they are stored, as native expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluice.declare.treat import Treatment
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def applied(settings: Settings, frame: DataFrame, treatments: Mapping[str, Treatment]) -> DataFrame:
    """The frame with its personal columns treated."""
    return frame
