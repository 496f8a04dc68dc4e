"""The bytes of whole files that could not be read, as they go to quarantine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.ingest.reading.delivery import Examined
from sluice.lake import tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HERE = 32_000_000
"""Files of so many bytes together are read in this process."""
MOST = 1_000_000_000
"""A larger file does not fit a row: its bytes stay where they are."""


def of_files(session: SparkSession, refused: list[Examined]) -> DataFrame:
    """Files with their bytes: _delivery, _file, _reason, content. A link is not followed, a file above MOST not copied: content NULL."""
    small = sum(item.delivery.size or 0 for item in refused) <= HERE
    kept = [item for item in refused if not item.delivery.path.is_symlink() and (item.delivery.size or 0) <= MOST]
    inline = [(*_told(item), _bytes(item.delivery.path) if small and item in kept else None) for item in refused]
    files = tables.inline(session, inline, "_delivery BIGINT, _file STRING, _reason STRING, content BINARY")
    if small or not kept:
        return files
    frame = session.read.format("binaryFile").load([_literal(item.delivery.path) for item in kept])
    places = [(str(item.delivery.path), item.delivery.number) for item in kept]
    numbers = tables.inline(session, places, "_path STRING, _delivery BIGINT")
    contents = frame.select(_decoded(F.col("path")).alias("_path"), "content").join(F.broadcast(numbers), "_path").drop("_path")
    return files.drop("content").join(contents, "_delivery", "left")


def _told(item: Examined) -> tuple[int, str, str]:
    too_large = " (it is too large for a row here; its bytes stay in the landing folder)"
    reason = item.reason or "it cannot be read"
    return item.delivery.number, item.delivery.file, reason + too_large if (item.delivery.size or 0) > MOST else reason


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _literal(path: Path) -> str:
    """A path whose brackets and stars Spark does not take for a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))


def _decoded(path: Column) -> Column:
    return F.regexp_replace(F.url_decode(F.regexp_replace(path, r"\+", "%2B")), "^file:/+", "/")
