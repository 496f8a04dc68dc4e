"""The options of autoload_to_table: those of Source by name, and Auto Loader's own spellings where they mean the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sluice.declare.ingest.file_formats import CsvDialect
from sluice.declare.ingest.source import Source
from sluice.errors import UsageError, nearest_name_hint

_BY_ARGUMENTS = ("name", "path", "format")
_HERE = frozenset({
    *(option.name for option in fields(CsvDialect)),
    *(
        "comment",
        "pattern",
        "multi_line",
        "path_columns",
        "most_bytes",
        "most_growth",
    ),
    *("schema", "schema_hints", "infer_types", "schema_evolution", "widen_types", "most_columns"),
    *(
        "ready_marker",
        "include_existing_files",
        "allow_overwrites",
        "redelivery",
        "max_files_per_trigger",
        "max_bytes_per_trigger",
    ),
    *("clean_source", "clean_after_days"),
})
"""The options of Source that work without a pipeline. The others are about people, dates and other tables, which autoload lacks."""

_TYPES = {f.name: str(f.type) for f in fields(Source) if f.name in _HERE}
_OF_PIPELINES = tuple(f.name for f in fields(Source) if f.name not in (*_BY_ARGUMENTS, *_HERE))

ALIASES = {
    "cloudFiles.schemaHints": "schema_hints",
    "cloudFiles.inferColumnTypes": "infer_types",
    "inferSchema": "infer_types",
    "cloudFiles.schemaEvolutionMode": "schema_evolution",
    "cloudFiles.maxFilesPerTrigger": "max_files_per_trigger",
    "maxFilesPerTrigger": "max_files_per_trigger",
    "cloudFiles.maxBytesPerTrigger": "max_bytes_per_trigger",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
    "cloudFiles.allowOverwrites": "allow_overwrites",
    "cloudFiles.includeExistingFiles": "include_existing_files",
    "cloudFiles.cleanSource": "clean_source",
    "pathGlobFilter": "pattern",
    "multiLine": "multi_line",
    "sep": "delimiter",
    "charset": "encoding",
}
"""Spellings of Auto Loader and Spark, with the names used here. As there, letter case does not matter."""

_VALUES: dict[str, dict[str, dict[str, Any]]] = {
    "cloudFiles.schemaEvolutionMode": {
        "addnewcolumns": {"schema_evolution": "add_new_columns"},
        "addnewcolumnswithtypewidening": {"schema_evolution": "add_new_columns", "widen_types": True},
        "rescue": {"schema_evolution": "rescue"},
        "failonnewcolumns": {"schema_evolution": "fail_on_new_columns"},
        "none": {"schema_evolution": "none"},
    },
    "cloudFiles.cleanSource": {
        "off": {"clean_source": "keep"},
        "move": {"clean_source": "archive"},
        "delete": {"clean_source": "delete"},
    },
}
_NEEDLESS = {
    "cloudFiles.format": "the second argument says it",
    "cloudFiles.schemaLocation": "the schema log lies in the checkpoint directory",
    "checkpointLocation": "the fourth argument says it",
    "mergeSchema": "schema_evolution says what becomes of new fields",
    "rescuedDataColumn": "the column is always there, and is called _rescued_data",
    "recursiveFileLookup": "sub-folders are always searched",
    "cloudFiles.partitionColumns": "values in the path become columns by themselves; path_columns=False turns it off",
    "cloudFiles.useIncrementalListing": "a folder on a disk is listed whole, which takes a second for 100,000 files",
    "cloudFiles.backfillInterval": "every call lists the whole folder",
    "cloudFiles.useNotifications": "every call lists the whole folder",
    "mode": "no record is dropped: what does not fit goes to _rescued_data, what is no record to the quarantine",
}
_LOWER_ALIASES = {name.lower(): name for name in (*ALIASES, *_NEEDLESS)}


def build_autoload_source(name: str, path: str, source_format: str, options: Mapping[str, object]) -> Source:
    """Builds the source that the arguments describe. Raises UsageError for an option given twice or unknown, with the nearest name."""
    format_ = source_format.lower()
    said: dict[str, Any] = {}
    by: dict[str, str] = {}
    for option, value in options.items():
        for field, meant in _translate_option(option, value).items():
            if field in by:
                raise UsageError(f"autoload_to_table: '{by[field]}' and '{option}' say the same thing. Leave one of them out.")
            by[field] = option
            said[field] = meant
    format_ = "binary" if format_ == "binaryfile" else format_
    if format_ == "csv":
        said.pop("multi_line", None)  # a quoted field may always hold line ends
    if said.get("redelivery") == "replace":
        raise UsageError(
            "autoload_to_table: redelivery='replace' is no option here: tables above bronze leave out earlier versions of a file, and this "
            "table would keep all of them. Leave it out, and read of each _file the rows with the greatest _delivery; or declare a Source in a "
            "pipeline."
        )
    return Source(name=name, path=path, format=format_, **said)  # type: ignore[arg-type]


def _translate_option(option: str, value: object) -> dict[str, Any]:
    """Translates an option into fields of Source."""
    known = option.lower() if option.lower() in _TYPES else _LOWER_ALIASES.get(option.lower())
    if known in _TYPES:
        return {str(known): _convert_option_value(option, value, _TYPES[str(known)])}
    if option.lower() in (*_BY_ARGUMENTS, *_OF_PIPELINES):
        why = "the arguments say it" if option.lower() in _BY_ARGUMENTS else "it is of a Source in a pipeline"
        raise UsageError(f"autoload_to_table: '{option}' is no option here: {why}. Leave it out.")
    if known in _NEEDLESS:
        raise UsageError(f"autoload_to_table: '{option}' is not needed: {_NEEDLESS[known]}. Leave it out.")
    if known is None:
        raise UsageError(f"autoload_to_table has no option '{option}'.{nearest_name_hint(option, (*_TYPES, *ALIASES))}")
    if known in _VALUES:
        return _translate_choice(option, value, _VALUES[known])
    return {ALIASES[known]: _convert_option_value(option, value, _TYPES[ALIASES[known]])}


def _translate_choice(option: str, value: object, choices: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    try:
        return choices[str(value).lower()]
    except KeyError:
        raise UsageError(f"autoload_to_table: unknown {option} '{value}'.{nearest_name_hint(str(value), choices)}") from None


def _convert_option_value(option: str, value: object, wanted: str) -> object:
    """Converts the value to the field's type: Auto Loader's options are texts."""
    if wanted == "bool":
        found = {"true": True, "false": False}.get(str(value).lower())
        if found is None:
            raise UsageError(f"autoload_to_table: {option} is True or False, not '{value}'.")
        return found
    if wanted in ("int", "float"):
        try:
            return (int if wanted == "int" else float)(str(value))
        except ValueError:
            raise UsageError(f"autoload_to_table: {option} is a number, not '{value}'.") from None
    return value
