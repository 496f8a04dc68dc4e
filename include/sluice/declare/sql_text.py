"""A transform declared as a SQL text over the names it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transform(text: str, reads: tuple[str, ...]) -> Callable[..., DataFrame]:
    """The function of the frames that are read, in the order of `reads`, that gives what the text selects from them."""

    def selected(*frames: DataFrame) -> DataFrame:
        session = frames[0].sparkSession
        for name, frame in zip(reads, frames, strict=True):
            frame.createOrReplaceTempView(name)
        try:
            return session.sql(text)
        finally:
            for name in reads:
                session.catalog.dropTempView(name)

    return selected
