"""The values that the folders of a file's path give to each of its records."""

from __future__ import annotations

from urllib.parse import unquote

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def parse_path_values(file: str) -> dict[str, str]:
    """Returns, by name, the values in the folders of a path, URL-decoded. file: the name relative to the source's folder.

    Only folders count, not the file's own name. A folder without a name or without "=" says nothing, and neither does `NO_VALUE`. If a name comes
    twice, the inner folder counts. An empty value is a value.
    """
    values: dict[str, str] = {}
    for folder in file.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and unquote(name).strip():
            values.pop(unquote(name), None)
            if value != NO_VALUE:
                values[unquote(name)] = unquote(value)
    return values
