"""A Hive metastore, called by thrift from Python, so that no JVM starts for it. Loads pymetastore, which has the metastore's messages.

A table is registered as Spark itself would do it: an external table whose provider is delta and whose location is the serde's `path`. The
columns are those of Delta's log at the time; engines that know Delta read the log and do not need them, but browsers of metadata do.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from sluice.catalog_address import CatalogAddress
from sluice.catalogs.catalog import LOCATION, PIPELINE, CatalogAway, CatalogFailed, HeldName, NamedTable

_SECONDS = 10.0
"""How long an answer may take: an unreachable metastore must not hold up a run."""
_PROVIDER = "spark.sql.sources.provider"
_PATH = "path"
_OWN = (PIPELINE, LOCATION, "comment", "EXTERNAL", _PROVIDER)
"""The parameters of an entry that Sluice sets and removes."""
_SEQUENCE_FILE = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_SEQUENCE_OUTPUT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
_LAZY = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""What Spark writes for tables of formats that Hive itself cannot read."""
_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
"""Otherwise the metastore lists a table's folder for the sizes of files, most of which may no longer belong to the table."""
_TYPES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "timestamp_ntz": "timestamp",
}
"""Delta's names of types that have another name in Hive."""
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_SAME_TYPES = ("string", "float", "double", "boolean", "binary", "date", "timestamp")


@contextmanager
def open_hive_metastore(address: CatalogAddress) -> Iterator[HiveMetastore]:
    """Connects to a metastore, and disconnects when the block ends."""
    socket = TSocket(address.host, address.port)
    socket.setTimeout(_SECONDS * 1000)
    transport = TBufferedTransport(socket)
    with _saying_what_failed():
        transport.open()
    try:
        yield HiveMetastore(ThriftHiveMetastore.Client(TBinaryProtocol(transport)))
    finally:
        transport.close()


class HiveMetastore:
    """A `Catalog` over a connection."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def list_names(self, pipeline: str) -> Mapping[str, HeldName]:
        """As `Catalog` says."""
        with _saying_what_failed():
            try:
                names = self._client.get_all_tables(pipeline)
                request = ttypes.GetTablesRequest(dbName=pipeline, tblNames=names)
                entries = self._client.get_table_objects_by_name_req(request).tables if names else []
            except (ttypes.NoSuchObjectException, ttypes.UnknownDBException):
                return {}
        return {entry.tableName: read_entry(entry) for entry in entries}

    def create_database(self, pipeline: str, comment: str) -> None:
        """As `Catalog` says."""
        with _saying_what_failed():
            try:
                self._client.get_database(pipeline)
            except ttypes.NoSuchObjectException:
                made = ttypes.Database(name=pipeline, description=comment, parameters={PIPELINE: pipeline})
                self._client.create_database(made)

    def create_table(self, table: NamedTable) -> None:
        """As `Catalog` says."""
        made = build_hive_table(table)
        made.parameters |= {} if table.query is not None else _NO_STATISTICS
        with _saying_what_failed():
            self._client.create_table(made)

    def is_current(self, held: HeldName, table: NamedTable) -> bool:
        """As `Catalog` says."""
        return bool(_take_over_entry(held.entry, build_hive_table(table)) == held.entry)

    def replace_table(self, held: HeldName, table: NamedTable) -> None:
        """As `Catalog` says."""
        renewed = _take_over_entry(held.entry, build_hive_table(table))
        with _saying_what_failed():
            self._client.alter_table_with_environment_context(
                table.pipeline, table.name, renewed, ttypes.EnvironmentContext(_NO_STATISTICS)
            )

    def remove_name(self, pipeline: str, held: HeldName) -> None:
        """As `Catalog` says."""
        with _saying_what_failed():
            self._client.drop_table(pipeline, held.name, False)


def build_hive_table(table: NamedTable) -> Any:
    """Returns the message that registers a table or a view."""
    # The metastore keeps names of columns in lower case; Spark takes the table's own spelling from Delta's log.
    columns = [
        ttypes.FieldSchema(column.name.lower(), name_hive_type(column.type), column.comment or None) for column in table.columns
    ]
    parameters = {PIPELINE: table.pipeline, LOCATION: table.location, **({"comment": table.comment} if table.comment else {})}
    stored = ttypes.StorageDescriptor(cols=columns, compressed=False, numBuckets=-1, bucketCols=[], sortCols=[], parameters={})
    stored.inputFormat, stored.outputFormat = _SEQUENCE_FILE, _SEQUENCE_OUTPUT
    stored.serdeInfo = ttypes.SerDeInfo(serializationLib=_LAZY, parameters={})
    made = ttypes.Table(dbName=table.pipeline, tableName=table.name, sd=stored, partitionKeys=[], parameters=parameters)
    if table.query is not None:
        made.tableType, made.viewOriginalText, made.viewExpandedText = "VIRTUAL_VIEW", table.query, table.query
        return made
    made.tableType, stored.location = "EXTERNAL_TABLE", table.location
    stored.serdeInfo.parameters[_PATH] = table.location
    made.parameters |= {"EXTERNAL": "TRUE", _PROVIDER: "delta"}
    return made


def _take_over_entry(entry: Any, wanted: Any) -> Any:
    """Returns an entry with all wanted values. What the metastore or others added to it stays."""
    renewed = copy.deepcopy(entry)
    kept = {name: value for name, value in (entry.parameters or {}).items() if name not in _OWN}
    renewed.parameters = kept | wanted.parameters
    renewed.tableType, renewed.viewOriginalText = wanted.tableType, wanted.viewOriginalText
    renewed.viewExpandedText = wanted.viewExpandedText
    renewed.sd.cols = wanted.sd.cols
    there = entry.sd.serdeInfo.parameters or {}
    renewed.sd.serdeInfo.parameters = there | wanted.sd.serdeInfo.parameters
    # The metastore writes a location in its own way (file:/ for file:///), so compare the path, which nobody rewrites.
    if renewed.sd.serdeInfo.parameters != there:
        renewed.sd.location = wanted.sd.location
    return renewed


def read_entry(entry: Any) -> HeldName:
    """Returns the taken name that an entry of the metastore describes."""
    said, stored = entry.parameters or {}, entry.sd
    serde = (stored.serdeInfo.parameters or {}) if stored and stored.serdeInfo else {}
    location = said.get(LOCATION) or serde.get(_PATH) or (stored.location if stored else "") or ""
    return HeldName(entry.tableName, location, said.get(PIPELINE), entry)


def name_hive_type(said: str | Mapping[str, Any]) -> str:
    """Returns Hive's name for a type of Delta's log. A type that Hive does not know, or cannot express, is a string."""
    if isinstance(said, str):
        return _TYPES.get(said, said if said in _SAME_TYPES or said.startswith("decimal(") else "string")
    if said["type"] == "array":
        return f"array<{name_hive_type(said['elementType'])}>"
    if said["type"] == "map":
        return f"map<{name_hive_type(said['keyType'])},{name_hive_type(said['valueType'])}>"
    # Hive has no way to quote a field's name, and Spark refuses a table with a type that it cannot parse.
    if said["type"] == "struct" and all(_PLAIN_NAME.fullmatch(one["name"]) for one in said["fields"]):
        return f"struct<{','.join(one['name'] + ':' + name_hive_type(one['type']) for one in said['fields'])}>"
    return "string"


@contextmanager
def _saying_what_failed() -> Iterator[None]:
    """Turns every error of the metastore into CatalogFailed, and those of the connection into CatalogAway."""
    try:
        yield
    except (TException, OSError) as error:
        said = str(getattr(error, "message", None) or error).splitlines()
        failure = CatalogAway if isinstance(error, TTransportException | TProtocolException | OSError) else CatalogFailed
        raise failure(f"{type(error).__name__}: {said[0] if said else 'without a reason'}") from error
