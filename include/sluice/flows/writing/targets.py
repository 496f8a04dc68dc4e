"""Prepares the table that a flow writes: creates it with the columns of its transform, and adds columns that the transform returns later.

It also checks that Spark can compare every column: only differences are written, so a column without `<=>` cannot be merged.

Before a row with personal data is written, it also checks that the root is the right one and closed to others, and that the existing rows
have the same pseudonym key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sluice import delta_log
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.erasure import unreachable_places
from sluice.declare.quoting import quote_identifier
from sluice.declare.sql.schema import sql_literal
from sluice.declare.table_layout import Layout
from sluice.errors import DeclarationError, SluiceError, nearest_name_hint
from sluice.flows.progress import checkpoints
from sluice.flows.progress.stream_starts import REFRESH_REQUESTED
from sluice.flows.writing.enforced import constraint_refusal_text, enforceable_schema
from sluice.flows.writing.ranges import BoundingColumns
from sluice.lake import log, log_files, restricted_tables, rowless_commits, table_creation, table_frames, versions
from sluice.lake.layout_properties import PropertyChanges
from sluice.lake.nested_types import find_added_fields, type_ddl
from sluice.lake.small_writes import OPERATION
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.lake.written_alike import choose_statistics_columns
from sluice.privacy import secrets, treatments
from sluice.quality import quarantine
from sluice.quality.verdicts import VERDICT
from sluice.step_times import PREPARING, WRITING, measure_step
from sluice.table_properties import FINGERPRINT, PSEUDONYM_KEYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BOUNDING = ("date", "timestamp", "integer", "long", "short", "byte")


@measure_step(PREPARING)
def prepare_target_table(
    workspace: Workspace, dataset: Dataset[Any], wanted: StructType, provenance: Sequence[str] = (), anew: str | None = None
) -> TableShape | None:
    """Creates or widens a table and its quarantine. anew: why the table is made from scratch; it may then get another schema.

    Returns the shape that must replace the table if its present columns do not fit, which only a refresh may do. Raises DeclarationError or
    SluiceError if the declaration and the table do not fit together.
    """
    check_declared_columns(dataset, wanted)
    check_personal_data_protection(workspace, dataset, anew == REFRESH_REQUESTED)
    path, retain = workspace.path(dataset.name), workspace.graph.pipeline.retain
    schema, checks = enforceable_schema(dataset, wanted)
    layout = dataset.layout or Layout()
    shape = TableShape(
        schema=schema,
        comment=dataset.comment,
        statistics=layout.statistics_columns
        or choose_statistics_columns(
            schema, dataset.private, first=(*dataset.cluster_by, *dataset.keys, *dataset.zorder_by, *provenance)
        ),
        statistics_declared=bool(layout.statistics_columns),
        partition_by=dataset.partition_by,
        retain=layout.retain or retain,
        keep_log=layout.keep_log,
        cluster_by=dataset.cluster_by,
        change_feed=layout.change_feed,
        deletion_vectors=layout.deletion_vectors,
        file_bytes=layout.file_bytes,
        checks=checks,
    )
    if dataset.kind.sets_rows_aside:
        quarantine.create_quarantine(workspace.session, workspace.quarantine(dataset.name), dataset.name, retain)
    _reset_flow_of_missing_table(workspace, dataset)
    if table_creation.create_table(workspace.session, path, shape):
        record_transform_fingerprint(workspace, dataset)
    elif anew == REFRESH_REQUESTED and _has_misfit_columns(workspace.session, path, shape):
        if shape.partition_by and log_files.has_clustering_feature(path):
            raise SluiceError(
                f"Table '{dataset.name}' is or was clustered, and Delta makes no partitions of such a table. Remove its folder and run again: "
                "it is made anew. Nothing was changed."
            )
        return shape
    else:
        return _align_existing_table(workspace, dataset, shape, anew)
    return None


def _reset_flow_of_missing_table(workspace: Workspace, dataset: Dataset[Any]) -> None:
    """Makes the flow of a missing table start anew: what its checkpoint says it has taken is gone with the table."""
    if not delta_log.is_delta_table(workspace.path(dataset.name)):
        flow = workspace.graph.flow_name(dataset)
        # Done before the table is created: an empty one that a killed run leaves behind must not seem complete.
        checkpoints.reset_checkpoint(workspace.checkpoints(flow), flow, checkpoints.TABLE_MISSING)


def _align_existing_table(workspace: Workspace, dataset: Dataset[Any], shape: TableShape, anew: str | None) -> TableShape | None:
    """Gives an existing table the columns, constraints and comments that it lacks, or returns the shape that must replace it."""
    session, path = workspace.session, workspace.path(dataset.name)
    _refuse_column_type_changes(session, path, shape.schema, dataset.name)
    needed = table_creation.find_pending_changes(session, path, shape)
    bad = table_creation.count_table_violations(session, path, shape, needed.added)
    # If all rows are made again, the old ones need not meet what is declared now.
    if bad and (
        anew == REFRESH_REQUESTED or (dataset.name in workspace.graph.views and has_transform_changed(workspace, dataset))
    ):
        return shape
    if bad:
        raise SluiceError(constraint_refusal_text(workspace.pipeline, dataset, bad))
    _add_missing_columns(session, path, shape.schema)
    table_creation.apply_pending_changes(session, path, shape, needed)
    return None


@measure_step(WRITING)
def replace_target_table(rows: DataFrame, path: str, shape: TableShape) -> int:
    """Replaces the table by these rows in one commit. Returns how many there are."""
    table_creation.replace_table(rows, path, shape)
    state = log.read_table_state(path)
    return state.rows if state and state.rows is not None else table_frames.read_table(rows.sparkSession, path).count()


def has_transform_changed(workspace: Workspace, dataset: Dataset[Any]) -> bool:
    """Whether the transform differs from the one that made all rows of the table."""
    return table_creation.read_table_property(workspace.path(dataset.name), FINGERPRINT) != compute_declaration_fingerprint(
        dataset
    )


def record_transform_fingerprint(workspace: Workspace, dataset: Dataset[Any]) -> None:
    """Records on the table that today's transform made all of its rows."""
    wanted = {FINGERPRINT: compute_declaration_fingerprint(dataset), **pseudonym_key_properties(workspace, dataset)}
    path = workspace.path(dataset.name)
    if any(table_creation.read_table_property(path, name) != value for name, value in wanted.items()):
        rowless_commits.change_table_properties(workspace.session, path, PropertyChanges(wanted))
    versions.remove_restoration_mark(workspace.session, path)


def choose_bounding_columns(dataset: Dataset[Any], schema: StructType, columns: Sequence[str] | None = None) -> BoundingColumns:
    """Chooses the columns, by default among the keys, by which files can be skipped: of a plain type or partitions, and not personal.

    Ranges of their values get into conditions, and so into plans and the table's history.
    """
    kinds = {key: schema[key].dataType.typeName() for key in columns or dataset.keys}
    fit = [key for key, kind in kinds.items() if kind in _BOUNDING or (kind == "string" and key in dataset.partition_by)]
    hidden = {name.lower() for name in dataset.private}  # to Spark, upper and lower case are one
    return BoundingColumns(schema, [key for key in fit if key.lower() not in hidden], listed=dataset.partition_by)


def check_column_names(dataset: Dataset[Any], names: Iterable[str], signs: str = "`") -> None:
    """Raises DeclarationError for a column of a transform that could not be written, or whose values would be lost.

    Those are the names that Sluice gives while it writes, and names with one of these signs. Delta's MERGE does not take a backtick.
    """
    own = {*VERDICT, OPERATION}
    for name in names:
        if name.lower() in own:
            raise DeclarationError(f"Table '{dataset.name}' makes a column '{name}', which is Sluice's. Give it another name.")
        if any(sign in name for sign in signs):
            raise DeclarationError(
                f"Table '{dataset.name}' makes a column '{name}'. A column's name holds none of: {' '.join(signs)} Give it another."
            )


def check_declared_columns(dataset: Dataset[Any], stored: StructType) -> None:
    """Raises DeclarationError if the declaration names a column that the transform does not return, or if a column cannot be stored."""
    names = stored.names
    for field, columns in dataset.named_columns.items():
        for column in columns:
            if column not in names:
                raise DeclarationError(
                    f"Table '{dataset.name}': {field} names '{column}', no column of it.{nearest_name_hint(column, names)}"
                )
    for mistake in unreachable_places.find_unknown_personal_columns(dataset, names):
        raise DeclarationError(mistake)
    check_comparable_columns(dataset, stored)


def _has_misfit_columns(session: SparkSession, path: str, shape: TableShape) -> bool:
    """Whether the table has other columns or partitions than the shape. Columns that are only missing can be added."""
    present = {field.name: field.dataType for field in table_frames.read_table(session, path).schema}
    wanted = {field.name: field.dataType for field in shape.schema}
    return any(
        name not in wanted or not _takes_type(kind, wanted[name]) for name, kind in present.items()
    ) or log.read_partition_columns(path) != list(shape.partition_by)


def _takes_type(present: DataType, given: DataType) -> bool:
    """Whether a column takes values of a type: it is the same, has more nested fields, or NULL may stand in fewer of those of the column."""
    if isinstance(present, StructType) and isinstance(given, StructType):
        known = {field.name.lower(): field for field in given}
        pairs = [(field, known.get(field.name.lower())) for field in present]
        return all(
            other is not None and one.nullable >= other.nullable and _takes_type(one.dataType, other.dataType)
            for one, other in pairs
        )
    if isinstance(present, ArrayType) and isinstance(given, ArrayType):
        return present.containsNull >= given.containsNull and _takes_type(present.elementType, given.elementType)
    if isinstance(present, MapType) and isinstance(given, MapType):
        return (
            present.valueContainsNull >= given.valueContainsNull
            and present.keyType.simpleString() == given.keyType.simpleString()  # Delta adds no fields to keys
            and _takes_type(present.keyType, given.keyType)
            and _takes_type(present.valueType, given.valueType)
        )
    return present == given


def _refuse_column_type_changes(session: SparkSession, path: str, wanted: StructType, table: str) -> None:
    # A table that has lost a file is noticed here, whether anything is new or not.
    present = {field.name: field for field in table_frames.read_table(session, path).schema}
    for field in wanted:
        if field.name in present and not _takes_type(present[field.name].dataType, field.dataType):
            was, now = present[field.name].dataType.simpleString(), field.dataType.simpleString()
            now += " with NULL within" if was == now else ""
            raise SluiceError(
                f"Table '{table}': its column '{field.name}' is {was}, its transform now gives {now}. "
                f"Give it another name, or make the table anew: sluice run PIPELINE --mode refresh --table {table}."
            )


def _add_missing_columns(session: SparkSession, path: str, wanted: StructType) -> None:
    """Adds columns, and fields within columns: in structs, also within arrays and the values of maps. No file is rewritten."""
    present = {field.name: field for field in table_frames.read_table_columns(session, path)}
    added: list[tuple[str, StructField]] = []
    for field in wanted:
        name = quote_identifier(field.name)
        there = present.get(field.name)
        added += [(name, field)] if there is None else find_added_fields(there.dataType, field.dataType, name)
    if added:
        columns = ", ".join(f"{name} {type_ddl(field.dataType)}{_comment_clause(field)}" for name, field in added)
        session.sql(f"ALTER TABLE delta.{quote_identifier(path)} ADD COLUMNS ({columns})")


def _comment_clause(field: StructField) -> str:
    said = field.metadata.get("comment")
    return f" COMMENT {sql_literal(said)}" if said else ""


_INSTEAD = {
    "map": "an array (map_entries) or a text (to_json)",
    "variant": "a text (to_json) or the fields that are used (variant_get)",
}


def check_comparable_columns(dataset: Dataset[Any], schema: StructType) -> None:
    """Raises DeclarationError if a column of a table or view, or a part of it, cannot be compared."""
    if not isinstance(dataset, Table | MaterializedView):
        return  # a stream appends, or merges the rows of its state by keys
    for field in schema:
        kind = _find_incomparable_type(field.dataType)
        if kind:
            what = "is" if field.dataType.typeName() == kind else "holds"
            raise DeclarationError(
                f"Table '{dataset.name}': its column '{field.name}' {what} a {kind.upper()}, which Spark cannot compare. Sluice finds "
                f"unchanged rows by comparing them. Store it as {_INSTEAD[kind]}."
            )


def _find_incomparable_type(kind: DataType) -> str | None:
    if isinstance(kind, MapType) or kind.typeName() == "variant":
        return str(kind.typeName())
    if isinstance(kind, ArrayType):
        return _find_incomparable_type(kind.elementType)
    if isinstance(kind, StructType):
        return next((found for field in kind if (found := _find_incomparable_type(field.dataType))), None)
    return None


def check_personal_data_protection(workspace: Workspace, dataset: Dataset[Any], anew: bool) -> None:
    """Raises UsageError or SluiceError if rows must not be written. anew: whether all rows are made again, so that the key may differ."""
    path = workspace.path(dataset.name)
    if workspace.elsewhere is None:
        restricted_tables.refuse_moved_table(workspace.settings, dataset.name, path, dataset.restricted)
    if dataset.restricted:
        restricted_tables.prepare_restricted_root(workspace.settings)
    before = (
        table_creation.read_table_property(path, PSEUDONYM_KEYS)
        if dataset.treatments and delta_log.is_delta_table(path)
        else None
    )
    if before and not anew and before != treatments.treatment_key_marks(workspace.settings, dataset):
        names = ", ".join(f"'{name}'" for name in secrets.list_marked_keys(before))
        raise SluiceError(
            f"Table '{dataset.name}' has pseudonyms that were made with another key (secret {names}). Put the key back; or, if it is lost, "
            f"make the table anew with the key of today: sluice run {workspace.pipeline} --mode refresh --table {dataset.name}"
        )


def pseudonym_key_properties(workspace: Workspace, dataset: Dataset[Any]) -> Mapping[str, str]:
    """Returns table properties that identify the keys of its pseudonyms, without telling anything else about the keys."""
    keys = treatments.treatment_key_marks(workspace.settings, dataset)
    return {PSEUDONYM_KEYS: keys} if keys else {}
