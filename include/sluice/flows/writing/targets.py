"""The table that a flow writes: made ahead with the columns of its transform, widened when the transform gives more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from sluice.declare.assembly.fingerprint import fingerprint
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table
from sluice.declare.erasure import prevention
from sluice.errors import DeclarationError, SluiceError, nearest
from sluice.flows.progress import checkpoints, restored
from sluice.flows.writing import comparable, protection
from sluice.flows.writing.difference import kept
from sluice.flows.writing.enforced import enforced, refused
from sluice.flows.writing.ranges import Bounding
from sluice.lake import constraints, log, tables
from sluice.lake.tables import Shape, statistics
from sluice.lake.workspace import Workspace, has_quarantine
from sluice.quality import quarantine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REFRESH = "refresh"
"""The reason to make a table anew that a person gives; it may change the schema."""

_FINGERPRINT = "sluice.fingerprint"
_BOUNDING = ("date", "timestamp", "integer", "long", "short", "byte")


def prepare(
    workspace: Workspace, dataset: Dataset[Any], wanted: StructType, provenance: Sequence[str] = (), anew: str | None = None
) -> Shape | None:
    """Make or widen a table, and its quarantine. anew: it is made from scratch, and may get another schema.

    Returns the shape to replace it with where its present columns do not fit, which only a refresh may do. Raises DeclarationError or
    SluiceError where declared and real do not fit.
    """
    check_columns(dataset, wanted)
    protection.check(workspace, dataset, anew == REFRESH)
    path, retain = workspace.path(dataset.name), workspace.graph.pipeline.retain
    schema, checks = enforced(dataset, wanted)
    shape = Shape(
        schema=schema,
        comment=dataset.comment,
        statistics=statistics(schema, dataset.private, first=(*dataset.keys, *dataset.zorder_by, *provenance)),
        partition_by=dataset.partition_by,
        retain=retain,
        checks=checks,
    )
    if has_quarantine(dataset):
        quarantine.create(workspace.session, workspace.quarantine(dataset.name), dataset.name, retain)
    _forget_what_is_gone(workspace, dataset)
    if tables.create(workspace.session, path, shape):
        remember(workspace, dataset)
    elif anew == REFRESH and _misfit(workspace.session, path, shape):
        return shape
    else:
        return _brought_up(workspace, dataset, shape, anew)
    return None


def _forget_what_is_gone(workspace: Workspace, dataset: Dataset[Any]) -> None:
    """Let the flow of a table that is not there start anew: what its checkpoint says was taken went with the table."""
    if not log.exists(workspace.path(dataset.name)):
        flow = f"{workspace.graph.layer(dataset)}_{dataset.name}"
        # Before the table is made: an empty one that a killed run leaves behind must not pass for all that there was.
        checkpoints.reset(workspace.checkpoints(flow), flow, checkpoints.GONE)


def _brought_up(workspace: Workspace, dataset: Dataset[Any], shape: Shape, anew: str | None) -> Shape | None:
    """Give a table that is there the columns, constraints and comments that it lacks, or say that it is to be replaced."""
    session, path = workspace.session, workspace.path(dataset.name)
    _refuse_other_types(session, path, shape.schema, dataset.name)
    needed = constraints.pending(session, path, shape)
    bad = constraints.violations(session, path, shape, needed.added)
    # Rows that are all made again need not have met what is declared now.
    if bad and (anew == REFRESH or (isinstance(dataset, MaterializedView) and changed(workspace, dataset))):
        return shape
    if bad:
        raise SluiceError(refused(workspace.pipeline, dataset, bad))
    _widen(session, path, shape.schema)
    constraints.align(session, path, shape, needed)
    return None


def replace(rows: DataFrame, path: str, shape: Shape) -> int:
    """Replace the table by these rows in one commit. Returns how many they are."""
    with kept(rows) as final:
        number = final.count()
        tables.replace(final, path, shape)
    return number


def changed(workspace: Workspace, dataset: Dataset[Any]) -> bool:
    """Whether the transform is another than the one that made all rows of the table."""
    return tables.property_of(workspace.path(dataset.name), _FINGERPRINT) != fingerprint(dataset)


def remember(workspace: Workspace, dataset: Dataset[Any]) -> None:
    """Note on the table that all its rows are by today's transform."""
    wanted = {_FINGERPRINT: fingerprint(dataset), **protection.marks(workspace, dataset)}
    path = workspace.path(dataset.name)
    if any(tables.property_of(path, name) != value for name, value in wanted.items()):
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
        workspace.session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
    restored.unmark(workspace.session, path)


def bounding(dataset: Dataset[Any], schema: StructType, columns: Sequence[str] | None = None) -> Bounding:
    """Columns, by default the keys, by which files can be left out: of a plain type or partitions, and not personal.

    Ranges of their values get into conditions, and so into plans and the table's history.
    """
    kinds = {key: schema[key].dataType.typeName() for key in columns or dataset.keys}
    fit = [key for key, kind in kinds.items() if kind in _BOUNDING or (kind == "string" and key in dataset.partition_by)]
    return Bounding(schema, [key for key in fit if key not in dataset.private], listed=dataset.partition_by)


def check_columns(dataset: Dataset[Any], stored: StructType) -> None:
    """Raises DeclarationError where the declaration names a column that the transform does not give, or where one cannot be stored."""
    names = stored.names
    wanted = {"keys": dataset.keys, "zorder_by": dataset.zorder_by, "partition_by": dataset.partition_by}
    if isinstance(dataset, Table) and dataset.sequence_by:
        wanted["sequence_by"] = (dataset.sequence_by,)
    if dataset.subject:
        wanted["subject"] = (dataset.subject,)
    for field, columns in wanted.items():
        for column in columns:
            if column not in names:
                raise DeclarationError(
                    f"Table '{dataset.name}': {field} names '{column}', no column of it.{nearest(column, names)}"
                )
    for mistake in prevention.unknown(dataset, names):
        raise DeclarationError(mistake)
    comparable.check(dataset, stored)


def _misfit(session: SparkSession, path: str, shape: Shape) -> bool:
    """Whether the table has other columns than the shape, or other partitions; columns that are only missing can be added."""
    present = {field.name: field.dataType for field in tables.read(session, path).schema}
    wanted = {field.name: field.dataType for field in shape.schema}
    return any(wanted.get(name) != kind for name, kind in present.items()) or log.partitions(path) != list(shape.partition_by)


def _refuse_other_types(session: SparkSession, path: str, wanted: StructType, table: str) -> None:
    present = {field.name: field for field in tables.read(session, path).schema}
    for field in wanted:
        if field.name in present and present[field.name].dataType != field.dataType:
            was, now = present[field.name].dataType.simpleString(), field.dataType.simpleString()
            raise SluiceError(
                f"Table '{table}': its column '{field.name}' is {was}, its transform now gives {now}. "
                f"Give it another name, or make the table anew: sluice run PIPELINE --mode refresh --table {table}."
            )


def _widen(session: SparkSession, path: str, wanted: StructType) -> None:
    present = tables.read(session, path).columns
    added = [field for field in wanted if field.name not in present]
    if added:
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}{_comment(field)}" for field in added)
        session.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({columns})")


def _comment(field: StructField) -> str:
    said = field.metadata.get("comment")
    return f" COMMENT {constraints.literal(said)}" if said else ""
