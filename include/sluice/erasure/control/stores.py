"""Kinds of stores that the canary is planted in: which files they are, and what must be found in them by which decoder."""

from __future__ import annotations

import re
from typing import NamedTuple

from sluice.erasure.scan import Hit

TEXT, SHORT, LONG = "canary", "canary_number", "canary_long"
"""Domains of the canary's identifiers: a text and a number of many digits, which are looked for everywhere, and a short number, in columns alone."""


class _Store(NamedTuple):
    """A kind of store. files: which they are; by: the decoder that must find something; kind: the form that it must find, "" for any.

    What stands raw in compressed bytes is found by another decoder, and proves nothing of the one that opens them.
    """

    name: str
    files: str
    by: str
    domain: str = TEXT
    kind: str = ""


_STORES = (
    _Store("change feed", r"table/_change_data/", "parquet"),
    _Store("table", r"table/[^/]*\.parquet\Z", "parquet"),
    _Store("table, whole number", r"table/[^/]*\.parquet\Z", "parquet", SHORT, "number"),
    _Store("table, short text", r"table/[^/]*\.parquet\Z", "parquet", SHORT, "raw"),
    _Store("deletion vectors", r"vectors/[^/]*\.parquet\Z", "parquet"),
    _Store("quarantine", r"quarantine/[^/]*\.parquet\Z", "parquet"),
    _Store("quarantine, short, in a record", r"quarantine/[^/]*\.parquet\Z", "parquet", SHORT),
    _Store("landing file, JSON", r"landing/.*\.jsonl\Z", "json"),
    _Store("landing file, JSON, short", r"landing/.*\.jsonl\Z", "json", SHORT),
    _Store("landing file, CSV", r"landing/.*\.csv\Z", "csv"),
    _Store("landing file, CSV, short", r"landing/.*\.csv\Z", "csv", SHORT),
    _Store("archive, gzip", r"archive/.*\.gz\Z", "json"),
    _Store("archive, bzip2", r"archive/.*\.bz2\Z", "json"),
    _Store("archive, zstd", r"archive/.*\.zst\Z", "json"),
    _Store("state, lz4-java", r"state/.*\.delta\Z", "spark blocks"),
    _Store("state, number as bytes", r"state/.*\.delta\Z", "spark blocks", LONG, "int64"),
    _Store("state, RocksDB table", r"state/.*\.sst\Z", "rocksdb table"),
    _Store("state, RocksDB rows, short number", r"state/.*\.sst\Z", "state rows", SHORT, "number"),
    _Store("state, RocksDB log", r"state/.*/\d+\.log\Z", "rocksdb log"),
    _Store("state, zip", r"state/.*\.zip\Z", "rocksdb log"),
    _Store("Delta checkpoint's statistics", r"temporary/checkpoint", "parquet"),
    _Store("Delta checkpoint's statistics, short", r"temporary/checkpoint", "parquet", SHORT),
    _Store("log of a commit", r"temporary/\.0+1\.json", "json"),
    _Store("Parquet metadata", r"temporary/checkpoint", "parquet metadata"),
    _Store("Parquet dictionary, an entry of no row", r"temporary/dictionary", "parquet dictionary"),
    _Store("gzip in a cell", r"temporary/cell", "text"),
    _Store("ORC", r"temporary/orc", "orc"),
    _Store("Arrow", r"temporary/arrow", "arrow"),
    _Store("SQLite", r"temporary/sqlite", "sqlite"),
    _Store("SQLite, short number", r"temporary/sqlite", "sqlite", SHORT, "number"),
    _Store("SQLite, free pages", r"temporary/free", "raw bytes"),
    _Store("pickle", r"temporary/pickle", "raw bytes"),
    _Store("event log, zstd", r"temporary/events", "json"),
    _Store("text log", r"temporary/text", "text"),
    _Store("lz4 frame", r"temporary/lz4", "text"),
    _Store("snappy, framed", r"temporary/framed", "text"),
    _Store("snappy, raw", r"temporary/raw", "text"),
    _Store("snappy, xerial", r"temporary/xerial", "text"),
    _Store("xz", r"temporary/xz", "text"),
    _Store("deflate", r"temporary/deflate", "text"),
    _Store("tar", r"temporary/tar", "text"),
    _Store("UTF-16 text", r"temporary/utf-16", "utf-16"),
    _Store("UTF-16 text, short", r"temporary/utf-16", "utf-16", SHORT),
    _Store("base64 text", r"temporary/base64", "text", TEXT, "base64"),
    _Store("JSON, a letter escaped", r"temporary/escaped", "unescaped"),
    _Store("base64 in lines", r"temporary/wrapped", "joined base64", TEXT, "base64"),
    _Store("hash without a key", r"temporary/hash", "text", TEXT, "sha256"),
    _Store("gzip within zip", r"temporary/nested", "text"),
    _Store("name of a file", r"temporary/", "names"),
)

STORES = tuple(one.name for one in _STORES)
"""What they are called."""


def store_of(path: str, hit: Hit) -> str | None:
    """Which kind of store something was found in. path: below the canary's folder."""
    return next(
        (
            one.name
            for one in _STORES
            if (one.by, one.domain) == (hit.decoder, hit.domain) and one.kind in ("", hit.kind) and re.match(one.files, path)
        ),
        None,
    )
