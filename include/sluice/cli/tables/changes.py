"""`sluice changes`: the rows inserted, updated and deleted between two versions of a table, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sluice.cli.name_lookup import resolve_table_name
from sluice.cli.printing import AsJson, Limit, TableName, escaping_console, format_instant, print_json, print_rows
from sluice.cli.tables.read import select_printable_columns
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import DeclarationError, SluiceError, UsageError
from sluice.lake import commit_history, log
from sluice.lake.arrow_to_python import list_rows_with_texts
from sluice.open_tables import open_checked_table
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings
from sluice.table_properties import CHANGE_FEED, CHANGE_FEED_COLUMNS

CHANGE, VERSION, AT = CHANGE_FEED_COLUMNS
_KINDS = pa.array(["delete", "update_preimage", "update_postimage", "insert"])
"""The kinds of changes of one key in one version, in the order in which they are shown."""

_ORDER = "_order_of_changes"
_NO_FEED = ("change data enabled", "Change Data not enabled", CHANGE_FEED)
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def changes(
    name: TableName,
    from_version: Annotated[
        int, typer.Option("--from-version", min=0, help="The first version to show, as in `sluice history`.")
    ],
    to_version: Annotated[
        int | None, typer.Option("--to-version", min=0, help="The last version to show; the latest unless given.")
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the rows that each version inserted, updated or deleted, oldest version first. An update is two rows: before and after."""
    records, wanted, path = resolve_table_name(Settings.current(), name)
    last = _resolve_last_version(name, path, from_version, to_version)
    found = _read_changes(name, path, range(from_version, last + 1), _find_declared_keys(records, wanted), limit + 1)
    columns = _list_change_columns(path, wanted)
    # A version has the columns that the table had then.
    rows = [{column: row.get(column) for column in columns} | {AT: format_instant(row[AT])} for row in found[:limit]]
    if as_json:
        print_json({
            "table": name,
            "from_version": from_version,
            "to_version": last,
            "columns": columns,
            "rows": rows,
            "more": len(found) > limit,
        })
    elif rows:
        print_rows(rows, columns)
        if len(found) > limit:
            escaping_console().print(f"... and more; --limit {limit * 10} shows them")
    else:
        versions = f"version {last}" if last == from_version else f"versions {from_version} to {last}"
        escaping_console().print(f"No row of '{name}' changed in {versions}.")


def _resolve_last_version(name: str, path: str, first: int, last: int | None) -> int:
    """The last version to show. Raises UsageError unless the table has that version and the first."""
    versions = [int(commit["version"]) for commit in commit_history.read_commit_history(path)]
    oldest, latest = min(versions), max(versions)
    for option, version in (("from", first), ("to", latest if last is None else last)):
        if not oldest <= version <= latest:
            raise UsageError(f"Table '{name}' has no version {version} (--{option}-version): its log has {oldest} to {latest}.")
    if last is not None and last < first:
        raise UsageError(f"--to-version {last} is before --from-version {first}.")
    return latest if last is None else last


def _read_changes(name: str, path: str, versions: range, keys: Sequence[str], most: int) -> list[dict[str, Any]]:
    """The first changes of these versions, at most this many."""
    if log.read_table_properties(path).get(CHANGE_FEED) != "true":
        raise _unreadable_version_error(name, versions[0], CHANGE_FEED)
    delta = open_checked_table(path)
    found: list[dict[str, Any]] = []
    for version in versions:
        if len(found) >= most:
            break
        try:
            found += _read_version_changes(delta, version, keys, most - len(found))
        except (DeltaError, pa.ArrowException, OSError) as error:
            raise _unreadable_version_error(name, version, str(error)) from None
    return found


def _read_version_changes(delta: DeltaTable, version: int, keys: Sequence[str], most: int) -> list[dict[str, Any]]:
    """The version's first changes by key. Keeps only the requested number and one batch in memory."""
    first: pa.Table | None = None
    for batch in pa.RecordBatchReader.from_stream(delta.load_cdf(version, version)):
        part = _make_sortable(pa.Table.from_batches([batch]))
        both = part if first is None else pa.concat_tables([first, part])
        order = [(key, "ascending") for key in (*keys, _ORDER) if _is_sortable(both.schema, key)]
        first = both.take(pc.sort_indices(both, sort_keys=order)[:most])
    return [] if first is None else list_rows_with_texts(first.drop_columns([_ORDER]))


def _make_sortable(part: pa.Table) -> pa.Table:
    """The part with sortable types, times with their zone, and the rank of each change among those of its key."""
    utc = pa.timestamp("us", tz="UTC")
    fields = [field.with_type(utc if field.name == AT else _PLAIN.get(field.type, field.type)) for field in part.schema]
    part = part.cast(pa.schema(fields))
    return part.append_column(_ORDER, pc.index_in(part[CHANGE], value_set=_KINDS))


def _is_sortable(schema: pa.Schema, name: str) -> bool:
    # A version may lack a key that is declared now.
    return name in schema.names and not (pa.types.is_nested(schema.field(name).type) or pa.types.is_null(schema.field(name).type))


def _list_change_columns(path: str, wanted: str) -> list[str]:
    """The table's own columns, then those that Sluice adds, then those that describe the change."""
    columns = select_printable_columns([field.name for field in open_checked_table(path).schema().fields], wanted)
    return [*sorted(columns, key=lambda column: column in ("_delivery", "_row")), CHANGE, VERSION, AT]


def _find_declared_keys(records: PipelineRecords, wanted: str) -> tuple[str, ...]:
    """The keys of a declared table; of any other none, so that its changes come in the order of its files."""
    try:
        graph = load_declaration_graph(records.settings, records.pipeline)
    except DeclarationError:
        return ()
    declared = graph.datasets.get(wanted)
    return declared.keys if declared else ()


def _unreadable_version_error(name: str, version: int, why: str) -> SluiceError:
    if any(words in why for words in _NO_FEED):
        return UsageError(
            f"Table '{name}' kept no change feed at version {version}. "
            f'Compare the table as it was: sluice sql "SELECT * FROM {name}" --as-of {version}'
        )
    if "not found" in why or "No such file" in why:
        return SluiceError(
            f"The change files of version {version} of '{name}' are gone: they are removed when their retention ends. "
            f"Begin at a later version; `sluice history {name}` lists them."
        )
    return SluiceError(f"The changes of version {version} of '{name}' cannot be read: the log or a file is damaged.")
