"""Runs a declared table over the rows of a test, by the same steps as its flow but without the lake.

The rows of a test become a DataFrame with the columns that the real table has.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sluice.declare.assembly.loading import find_sibling_declarations
from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import TemporaryView, View
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.expansion import (
    DeclarationsByKind,
    Declared,
    compose_transforms,
    expand_declarations,
    resolve_temporary_views,
)
from sluice.declare.ingest.source import Source
from sluice.declare.privacy.treat import Hmac
from sluice.declare.quality.expectations import ACTION_COUNTS
from sluice.declare.quoting import quote_columns
from sluice.durable_files import PRIVATE
from sluice.errors import SluiceError, UsageError, nearest_name_hint
from sluice.flows.bronze.table_shape import TECHNICAL
from sluice.flows.gold import view_batch
from sluice.flows.gold.checked_view import check_view_plan
from sluice.flows.silver import judged_rows
from sluice.flows.silver.fold_operations import select_winning_rows
from sluice.flows.writing import enforced
from sluice.flows.writing.enforced import count_verdicts
from sluice.lake import table_creation
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import PROVENANCE
from sluice.printable import count_noun, match_number
from sluice.quality import verdicts
from sluice.session import start_spark_session
from sluice.settings import Settings

_SMALL = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}


def session() -> SparkSession:
    """The process's session. The first call takes seconds to start it. As a fixture: `pytest.fixture(scope="session")(session)`.

    It is configured like the jobs', so that SQL means the same, apart from settings that make small data faster.
    """
    return SparkSession.getActiveSession() or start_spark_session(Settings.current(), "unit tests", _SMALL)


Row = dict[str, Any]
Runnable = Dataset[Any] | TemporaryView | AutoCdc | View[Any]


@dataclass(frozen=True)
class Result:
    """The results for the rows. rows: as stored, ordered by the keys, without Sluice's columns; a @view has no keys, and keeps its order.

    counted: the rows that each count of an action covers, such as "dropped": as the transform returned them, with `_failed_rules`, the
    names of the rules they fail. failed: how many rows fail each rule, of the table and of the tables it was made from.
    """

    rows: list[Row] = field(default_factory=list)
    counted: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in ACTION_COUNTS})
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def quarantined(self) -> list[Row]:
        """The rows that were set aside."""
        return self.counted["quarantined"]

    @property
    def dropped(self) -> list[Row]:
        """The rows that were left out."""
        return self.counted["dropped"]


def run(
    declared: Runnable, *, columns: Mapping[str, str] | None = None, using: Iterable[Declared] = (), **inputs: Given | DataFrame
) -> Result:
    """Runs a table, a view (stored or not) or an `auto_cdc` over the rows of its inputs: `run(heart_rate, readings=[{"device_id": 7, ...}])`.

    inputs: the rows of each source or table that is read, as dicts, as tuples in the order of its columns, or as a DataFrame. A
    declared input that is not given is made from its own inputs. columns: DDL by input, needed if its declaration has no `schema=` and
    the values do not show the types. using: declarations from other modules.
    Raises SluiceError if a rule fails that must hold, or a view has a key twice; UsageError for rows or arguments that do not fit.
    """
    session()  # Spark reads the DDL
    needed = _find_needed_declarations(declared, [*using, *find_sibling_declarations(declared.module)], set(inputs))
    with _settings_with_test_keys(needed) as settings:
        running = TrialRun(settings, needed, inputs, columns or {})
        rows = running.make_rows(declared.name)
        keys = [key for key in getattr(running.stored.get(declared.name), "keys", ()) if key in rows.columns]
        result = replace(running.result, rows=_collect_rows(rows.drop(*PROVENANCE)))
        result.rows.sort(key=lambda row: [_nulls_first_sort_key(row[key]) for key in keys])
        return result


class TrialRun:
    """One run over the declarations it needs. result: what was refused so far."""

    def __init__(self, settings: Settings, needed: list[Declared], inputs: Mapping[str, Any], columns: Mapping[str, str]) -> None:
        self.settings, self.inputs, self.columns = settings, inputs, columns
        by_kind = DeclarationsByKind(needed)
        self.views = {item.name: item for item in by_kind.unstored}
        self.stored = {item.name: item for item in expand_declarations(needed)}
        computed = {item.name: item for item in by_kind.computed}
        self.found: dict[str, Declared] = {**self.stored, **computed, **self.views}
        self.result = Result()
        read = {name: None for item in needed for name in item.reads}
        for name in inputs:
            if name not in read:
                raise UsageError(f"'{name}' is given, but nothing reads it.{nearest_name_hint(name, read)}")

    def make_rows(self, name: str) -> DataFrame:
        """The rows of a table, stored or given. Raises UsageError if they cannot be made from what was given."""
        item = self.found.get(name)
        if name in self.inputs:
            return self.read_given_rows(name, technical=isinstance(item, Source)).drop(*PROVENANCE)
        if item is not None and item.kind.make_test_rows is not None:
            rows = item.kind.make_test_rows(self, item)
            if rows is not None:
                return rows
        raise UsageError(f"'{name}' is not given, nor what it is made of: {name}=[...].{nearest_name_hint(name, self.inputs)}")

    def has_rows_of(self, name: str) -> bool:
        """Whether rows are given for a table, or for something it is made from."""
        item = self.stored.get(name)
        below = item is not None and any(self.has_rows_of(read) for read in item.reads)
        return name in self.inputs or below

    def read_given_rows(self, name: str, technical: bool = True) -> DataFrame:
        """The rows given in the test. technical: whether to add the columns that Sluice adds in bronze, as for a source."""
        if name not in self.inputs:
            raise UsageError(f"The rows of '{name}' are not given: {name}=[...].{nearest_name_hint(name, self.inputs)}")
        rows, columns = self.inputs[name], self._columns(name)
        if isinstance(rows, DataFrame):
            columns, rows = rows.schema, [row.asDict() for row in rows.collect()]
        return build_input_frame(session(), name, rows, columns, technical)

    def _columns(self, name: str) -> StructType | None:
        item = self.stored.get(name)
        ddl = self.columns.get(name) or (item.ddl if item else None)
        if ddl:
            return table_creation.parse_ddl_schema(ddl)
        return enforced.declared_schema_columns(item) if isinstance(item, Dataset) else None

    def note_verdicts(self, dataset: Dataset[Any], judged: DataFrame) -> None:
        """Records which of these judged rows were refused. Raises SluiceError if a rule fails that must hold."""
        if not dataset.expectations:
            return
        report = FlowReport(flow=dataset.name, layer="")
        count_verdicts(dataset, judged, report)
        self.result.failed.update({name: number for name, number in report.rules.items() if number})
        shown = judged.drop(verdicts.NULL_RULES, *PROVENANCE)
        for name, is_counted in verdicts.action_count_conditions(dataset.expectations).items():
            if getattr(report, name):
                self.result.counted[name].extend(_collect_rows(shown.where(is_counted)))


def make_table_rows(running: TrialRun, table: Table[Any]) -> DataFrame | None:
    """Makes the rows of a table as its flow does; None if its source is not given."""
    if table.reads[0] not in running.inputs:
        return None
    rows = judged_rows.transform_source_rows(table, running.read_given_rows(table.reads[0]))
    judged_rows.check_table_columns(table, rows)
    verdicts.check_conditions(session(), table, rows.schema)
    judged = judged_rows.judge_rows(running.settings, table, rows)
    stored = judged_rows.prepare_rows_for_storage(running.settings, table, judged)
    running.note_verdicts(table, judged)
    return select_winning_rows(table, judged_rows.select_accepted_rows(table, stored)).drop(*PROVENANCE)


def make_view_rows(running: TrialRun, declared: MaterializedView[Any]) -> DataFrame | None:
    """Makes the rows of a view as its flow does; None if an input that it waits for cannot be made."""
    view = declared.over(read for read in declared.reads if running.has_rows_of(read))
    if view is None:
        return None
    inputs = {read: running.make_rows(read) for read in view.reads}
    check_view_plan(session(), view, {name: frame.schema for name, frame in inputs.items()})
    rows = view(*inputs.values())
    view_batch.check_view_columns(view, rows)
    verdicts.check_conditions(session(), view, rows.schema)
    judged = view_batch.judge_view_rows(view, rows)
    running.note_verdicts(view, judged)
    stored = view_batch.treat_view_rows(running.settings, view, judged).drop(*verdicts.VERDICT)
    twice = stored.groupBy(*quote_columns(view.keys)).count().where("count > 1").count()
    if twice:
        raise SluiceError(
            f"View '{view.name}': {count_noun(twice, 'key')} ({', '.join(view.keys)}) {match_number(twice, 'comes', 'come')} more than once."
        )
    return stored


def make_computed_view_rows(running: TrialRun, view: View[Any]) -> DataFrame:
    """The rows that a reader of the view gets."""
    return view(*map(running.make_rows, view.reads))


def make_temporary_view_rows(running: TrialRun, view: TemporaryView) -> DataFrame:
    """The source's rows after the temporary views between it and this one, and this one itself."""
    source, passed = resolve_temporary_views(running.views, view.name)
    return compose_transforms(passed[:-1], passed[-1])(running.read_given_rows(source))


def _find_needed_declarations(declared: Runnable, known: Iterable[Declared], given: set[str]) -> list[Declared]:
    """The declaration and what it reads, down to what is given. Sources are always included, since they define the columns."""
    by_name = {item.name: item for item in (*known, declared)}
    needed: dict[str, Declared] = {}
    names = [declared.name]
    while names:
        item = by_name.get(name := names.pop())
        unstored = isinstance(item, TemporaryView | View) and item is not declared
        if item is None or name in needed or (name in given and unstored):
            continue
        needed[name] = item
        names += [] if name in given else item.reads
    return list(needed.values())


@contextmanager
def _settings_with_test_keys(needed: Iterable[Declared]) -> Iterator[Settings]:
    """Settings with pseudonym keys that are the same in every test and belong to nobody."""
    wanted = {how.secret for item in needed for how in item.treatments.values() if isinstance(how, Hmac)}
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as folder:
        for name in wanted:
            path = Path(folder) / name
            path.touch(mode=PRIVATE)
            path.write_text(hashlib.sha256(f"a test's {name}".encode()).hexdigest())
        yield replace(Settings.current(), secrets=Path(folder), secrets_given=None)


def _collect_rows(rows: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in rows.collect()]


def _nulls_first_sort_key(value: Any) -> Any:
    """The sort value of a key, NULL first; for a struct or an array its text."""
    return repr(value) if isinstance(value, dict | list) else (value is not None, value)


Given = Iterable[Mapping[str, Any] | Sequence[Any]]


def build_input_frame(session: SparkSession, name: str, rows: Given, columns: StructType | None, technical: bool) -> DataFrame:
    """The rows of an input as a frame. columns: None takes the columns of the rows, with the types of their values.

    technical: for a source, whose bronze table has Sluice's columns too. Raises UsageError if rows and columns do not fit.
    """
    own = table_creation.parse_ddl_schema(TECHNICAL) if technical else StructType([])
    given = list(rows)
    known = columns or _infer_schema(session, name, given)
    plain = [StructField(one.name, one.dataType, True) for one in known if one.name not in own.names]
    schema = StructType([*plain, *own.fields])
    named = [_add_provenance(_name_row_values(name, row, schema, len(plain)), number, own) for number, row in enumerate(given)]
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = [_build_arrow_array(name, field, [row.get(field.name) for row in named]) for field in arrow]
    return session.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema)


def _infer_schema(session: SparkSession, name: str, given: list[Any]) -> StructType:
    if not given or not all(isinstance(row, Mapping) for row in given):
        raise UsageError(
            f"The columns of '{name}' are not known: write its rows as dicts, or say columns={{'{name}': 'id BIGINT, ...'}}."
        )
    names = dict.fromkeys(column for row in given for column in row)
    return session.createDataFrame(pa.table({one: pa.array([row.get(one) for row in given]) for one in names})).schema


def _name_row_values(name: str, row: Mapping[str, Any] | Sequence[Any], schema: StructType, own_from: int) -> dict[str, Any]:
    if isinstance(row, Mapping):
        unknown = [column for column in row if column not in schema.names]
        if unknown:
            raise UsageError(
                f"A row of '{name}' has the column '{unknown[0]}', which it does not have.{nearest_name_hint(unknown[0], schema.names)}"
            )
        return dict(row)
    if len(row) != own_from:
        raise UsageError(
            f"A row of '{name}' has {count_noun(len(row), 'value')}, it has {count_noun(own_from, 'column')}: {', '.join(schema.names[:own_from])}."
        )
    return dict(zip(schema.names, row, strict=False))


def _add_provenance(row: dict[str, Any], number: int, own: StructType) -> dict[str, Any]:
    """Adds provenance to the row, unless the test gives it: all rows are of one delivery."""
    return {"_delivery": 1, "_row": number, **row} if own.fields else row


def _build_arrow_array(name: str, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise UsageError(f"Column '{field.name}' of '{name}' is {field.type}; the rows have {' and '.join(kinds)}.") from error
