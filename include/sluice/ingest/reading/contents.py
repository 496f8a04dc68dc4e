"""Reads the bytes of unreadable files as rows, since quarantine keeps them whole.

It is a module apart from the examination, which workers do without Spark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.ingest.reading.examination import ExaminedDelivery
from sluice.ingest.reading.records import is_read_in_process
from sluice.lake import table_creation
from sluice.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST = 1_000_000_000
"""A larger file does not fit into a row, so its bytes stay where they are."""


def read_refused_files(session: SparkSession, refused: list[ExaminedDelivery]) -> DataFrame:
    """Reads files with their bytes: _delivery, _file, _reason, content. The content is NULL for a link, and for a file larger than MOST."""
    small = is_read_in_process(sum(item.delivery.size or 0 for item in refused))
    kept = [item for item in refused if not item.delivery.path.is_symlink() and (item.delivery.size or 0) <= MOST]
    inline = [
        (*_describe_refused_file(item), _read_file_bytes(item.delivery.path) if small and item in kept else None)
        for item in refused
    ]
    files = table_creation.make_inline_frame(session, inline, "_delivery BIGINT, _file STRING, _reason STRING, content BINARY")
    if small or not kept:
        return files
    frame = session.read.format("binaryFile").load([_escape_path_pattern(item.delivery.path) for item in kept])
    numbered_paths = [(str(item.delivery.path), item.delivery.number) for item in kept]
    numbers = table_creation.make_inline_frame(session, numbered_paths, "_path STRING, _delivery BIGINT")
    contents = (
        frame
        .select(F.regexp_replace("path", "^file:/+", "/").alias("_path"), "content")
        .join(F.broadcast(numbers), "_path")
        .drop("_path")
    )
    return files.drop("content").join(contents, "_delivery", "left")


def _describe_refused_file(item: ExaminedDelivery) -> tuple[int, str, str]:
    too_large = " (it is too large for a row here; its bytes stay in the landing folder)"
    reason = item.reason or "it cannot be read"
    return item.delivery.number, item.delivery.file, reason + too_large if (item.delivery.size or 0) > MOST else reason


def _read_file_bytes(path: Location) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _escape_path_pattern(path: Location) -> str:
    """A path whose brackets and stars Spark does not take for a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))
