"""Values that stand in a file's path: `date=2026-11-20/hour=07/a.json` is date 2026-11-20 and hour 07, as Hive and Spark write them."""

from __future__ import annotations

from urllib.parse import unquote

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def of_file(file: str) -> dict[str, str]:
    """By name, the values in the folders of a path, URL-decoded. file: below the source's folder.

    Only folders count, not the file's own name; a folder without a name or without "=" says nothing, nor does `NO_VALUE`.
    Where a name comes twice the inner folder counts; an empty value is one.
    """
    values: dict[str, str] = {}
    for folder in file.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and unquote(name).strip():
            values.pop(unquote(name), None)
            if value != NO_VALUE:
                values[unquote(name)] = unquote(value)
    return values
