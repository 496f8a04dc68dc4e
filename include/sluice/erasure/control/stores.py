"""Kinds of stores that the canary is planted in: which files they are, and what must be found in them by which decoder."""

from __future__ import annotations

import re
from typing import NamedTuple

from residue import Hit

TEXT, SHORT, LONG = "canary", "canary_number", "canary_long"
"""Domains of the canary's identifiers: a text and a number of many digits, which are looked for everywhere, and a short number, in columns alone."""


class _StoreKind(NamedTuple):
    """A kind of store. files: which they are; by: the decoder that must find something; kind: the form that it must find, "" for any.

    What stands raw in compressed bytes is found by another decoder, and proves nothing of the one that opens them.
    """

    name: str
    files: str
    by: str
    domain: str = TEXT
    kind: str = ""


_STORES = (
    _StoreKind("change feed", r"table/_change_data/", "parquet"),
    _StoreKind("table", r"table/[^/]*\.parquet\Z", "parquet"),
    _StoreKind("table, whole number", r"table/[^/]*\.parquet\Z", "parquet", SHORT, "number"),
    _StoreKind("table, short text", r"table/[^/]*\.parquet\Z", "parquet", SHORT, "raw"),
    _StoreKind("deletion vectors", r"vectors/[^/]*\.parquet\Z", "parquet"),
    _StoreKind("quarantine", r"quarantine/[^/]*\.parquet\Z", "parquet"),
    _StoreKind("quarantine, short, in a record", r"quarantine/[^/]*\.parquet\Z", "parquet", SHORT),
    _StoreKind("landing file, JSON", r"landing/.*\.jsonl\Z", "json"),
    _StoreKind("landing file, JSON, short", r"landing/.*\.jsonl\Z", "json", SHORT),
    _StoreKind("landing file, CSV", r"landing/.*\.csv\Z", "csv"),
    _StoreKind("landing file, CSV, short", r"landing/.*\.csv\Z", "csv", SHORT),
    _StoreKind("archive, gzip", r"archive/.*\.gz\Z", "json"),
    _StoreKind("archive, bzip2", r"archive/.*\.bz2\Z", "json"),
    _StoreKind("archive, zstd", r"archive/.*\.zst\Z", "json"),
    _StoreKind("state, lz4-java", r"state/.*\.delta\Z", "spark blocks"),
    _StoreKind("state, number as bytes", r"state/.*\.delta\Z", "spark blocks", LONG, "int64"),
    _StoreKind("state, RocksDB table", r"state/.*\.sst\Z", "rocksdb table"),
    _StoreKind("state, RocksDB rows, short number", r"state/.*\.sst\Z", "state rows", SHORT, "number"),
    _StoreKind("state, RocksDB log", r"state/.*/\d+\.log\Z", "rocksdb log"),
    _StoreKind("state, zip", r"state/.*\.zip\Z", "rocksdb log"),
    _StoreKind("Delta checkpoint's statistics", r"temporary/checkpoint", "parquet"),
    _StoreKind("Delta checkpoint's statistics, short", r"temporary/checkpoint", "parquet", SHORT),
    _StoreKind("log of a commit", r"temporary/\.0+1\.json", "json"),
    _StoreKind("Parquet metadata", r"temporary/checkpoint", "parquet metadata"),
    _StoreKind("Parquet dictionary, an entry of no row", r"temporary/dictionary", "parquet dictionary"),
    _StoreKind("gzip in a cell", r"temporary/cell", "text"),
    _StoreKind("ORC", r"temporary/orc", "orc"),
    _StoreKind("Arrow", r"temporary/arrow", "arrow"),
    _StoreKind("SQLite", r"temporary/sqlite", "sqlite"),
    _StoreKind("SQLite, short number", r"temporary/sqlite", "sqlite", SHORT, "number"),
    _StoreKind("SQLite, free pages", r"temporary/free", "raw bytes"),
    _StoreKind("pickle", r"temporary/pickle", "raw bytes"),
    _StoreKind("event log, zstd", r"temporary/events", "json"),
    _StoreKind("text log", r"temporary/text", "text"),
    _StoreKind("lz4 frame", r"temporary/lz4", "text"),
    _StoreKind("snappy, framed", r"temporary/framed", "text"),
    _StoreKind("snappy, raw", r"temporary/raw", "text"),
    _StoreKind("snappy, xerial", r"temporary/xerial", "text"),
    _StoreKind("xz", r"temporary/xz", "text"),
    _StoreKind("deflate", r"temporary/deflate", "text"),
    _StoreKind("tar", r"temporary/tar", "text"),
    _StoreKind("UTF-16 text", r"temporary/utf-16", "utf-16"),
    _StoreKind("UTF-16 text, short", r"temporary/utf-16", "utf-16", SHORT),
    _StoreKind("base64 text", r"temporary/base64", "text", TEXT, "base64"),
    _StoreKind("JSON, a letter escaped", r"temporary/escaped", "unescaped"),
    _StoreKind("base64 in lines", r"temporary/wrapped", "joined base64", TEXT, "base64"),
    _StoreKind("hash without a key", r"temporary/hash", "text", TEXT, "sha256"),
    _StoreKind("gzip within zip", r"temporary/nested", "text"),
    _StoreKind("name of a file", r"temporary/", "names"),
)

STORES = tuple(one.name for one in _STORES)
"""What they are called."""


def find_store_kind(path: str, hit: Hit) -> str | None:
    """Which kind of store something was found in. path: below the canary's folder."""
    return next(
        (
            one.name
            for one in _STORES
            if (one.by, one.domain) == (hit.decoder, hit.domain) and one.kind in ("", hit.kind) and re.match(one.files, path)
        ),
        None,
    )
