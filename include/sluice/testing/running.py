"""Running a declared table over rows that stand in a test: the same steps as its flow, but for the lake."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice.declare.assembly.loading import beside
from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import View
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table, TemporaryView
from sluice.declare.expansion.stored import Declared, composed, expanded, through
from sluice.declare.ingest.source import Source
from sluice.declare.privacy.treat import Hmac
from sluice.declare.quality.expectations import Action
from sluice.errors import SluiceError, UsageError, nearest
from sluice.flows.silver import made
from sluice.flows.silver.provenance import carried
from sluice.flows.silver.winners import normalised, winners
from sluice.flows.writing import enforced, targets
from sluice.flows.writing.judgement import judge
from sluice.lake import tables
from sluice.lake.report import FlowReport
from sluice.lake.workspace import PROVENANCE
from sluice.privacy import treatments
from sluice.quality import conditions, verdicts
from sluice.settings import Settings
from sluice.testing.frames import Given, frame
from sluice.testing.session import session

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Row = dict[str, Any]
Runnable = Dataset[Any] | TemporaryView | AutoCdc | View[Any]


@dataclass(frozen=True)
class Result:
    """What became of the rows. rows: as they are stored, ordered by the keys, without Sluice's columns; of a @view, which has none, as it gives them.

    quarantined, dropped: rows as the transform gave them, with `_failed_rules`, the names of the rules that they do not meet.
    failed: by rule, how many rows do not meet it, of the table and of the tables that it was made of.
    """

    rows: list[Row] = field(default_factory=list)
    quarantined: list[Row] = field(default_factory=list)
    dropped: list[Row] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)


def run(
    declared: Runnable, *, columns: Mapping[str, str] | None = None, using: Iterable[Declared] = (), **inputs: Given | DataFrame
) -> Result:
    """Run a table, a view (stored or not) or an `auto_cdc` over the rows of its inputs: `run(heart_rate, readings=[{"device_id": 7, ...}])`.

    inputs: rows by the name of the source or table that is read, as dicts, as tuples in the order of its columns, or as a DataFrame. An
    input that is declared and not given is made of its own inputs. columns: DDL by input, where its declaration has no `schema=` and the
    values of the rows do not tell. using: what is declared elsewhere than beside it.
    Raises SluiceError where a rule fails that must not, or a view has a key twice; UsageError for what does not fit.
    """
    session()  # DDL is read by Spark
    needed = _needed(declared, [*using, *beside(declared.module)], set(inputs))
    with _keys(needed) as settings:
        running = _Running(settings, needed, inputs, columns or {})
        rows = running.made(declared.name)
        keys = [key for key in getattr(running.found.get(declared.name), "keys", ()) if key in rows.columns]
        result = replace(running.result, rows=_rows(rows.drop(*PROVENANCE)))
        result.rows.sort(key=lambda row: [_sortable(row[key]) for key in keys])
        return result


class _Running:
    """One run over the declarations that are needed. result: what was refused so far."""

    def __init__(self, settings: Settings, needed: list[Declared], inputs: Mapping[str, Any], columns: Mapping[str, str]) -> None:
        self.settings, self.inputs, self.columns = settings, inputs, columns
        self.views = {item.name: item for item in needed if isinstance(item, TemporaryView)}
        self.computed = {item.name: item for item in needed if isinstance(item, View)}
        self.found = {item.name: item for item in expanded(needed)}
        self.result = Result()
        read = {name: None for item in needed if not isinstance(item, Source) for name in item.reads}
        for name in inputs:
            if name not in read:
                raise UsageError(f"'{name}' is given, but nothing reads it.{nearest(name, read)}")

    def made(self, name: str) -> DataFrame:
        """The rows of a table, stored or given. Raises UsageError where they can be made of nothing that was given."""
        item = self.found.get(name)
        if name in self.inputs:
            return self._given(name, technical=isinstance(item, Source)).drop(*PROVENANCE)
        if name in self.views:
            source, passed = through(self.views, name)
            return composed(passed[:-1], passed[-1])(self._given(source))
        if name in self.computed:
            return self.computed[name](*(self.made(read) for read in self.computed[name].reads))
        if isinstance(item, Table) and self._has(item):
            return self._table(item)
        if isinstance(item, MaterializedView) and (over := item.over(read for read in item.reads if self._has_name(read))):
            return self._view(over)
        raise UsageError(f"'{name}' is not given, nor what it is made of: {name}=[...].{nearest(name, self.inputs)}")

    def _has(self, table: Table[Any]) -> bool:
        return table.reads[0] in self.inputs

    def _has_name(self, name: str) -> bool:
        item = self.found.get(name)
        below = isinstance(item, Dataset) and any(self._has_name(read) for read in item.reads)
        return name in self.inputs or below

    def _given(self, name: str, technical: bool = True) -> DataFrame:
        """technical: whether it is read as a source is, with the columns that Sluice adds in bronze."""
        if name not in self.inputs:
            raise UsageError(f"The rows of '{name}' are not given: {name}=[...].{nearest(name, self.inputs)}")
        rows, columns = self.inputs[name], self._columns(name)
        if isinstance(rows, DataFrame):
            columns, rows = rows.schema, [row.asDict() for row in rows.collect()]
        return frame(session(), name, rows, columns, technical)

    def _columns(self, name: str) -> StructType | None:
        item = self.found.get(name)
        ddl = self.columns.get(name) or (item.ddl if isinstance(item, Source) else None)
        if ddl:
            return tables.columns(ddl)
        return enforced.columns(item) if isinstance(item, Dataset) else None

    def _table(self, table: Table[Any]) -> DataFrame:
        rows = normalised(carried(table(self._given(table.reads[0])), table.name))
        enforced.check(table, rows.schema)
        conditions.check(session(), table, rows.schema)
        judged = verdicts.with_verdict(rows, table.expectations)
        stored = made.stored(self.settings, table, judged)
        targets.check_columns(table, stored.drop(*verdicts.VERDICT).schema)
        self._judge(table, judged)
        return winners(table, made.accepted(table, stored)).drop(*PROVENANCE)

    def _view(self, view: MaterializedView[Any]) -> DataFrame:
        rows = view(*(self.made(name) for name in view.reads))
        enforced.check(view, rows.schema)
        conditions.check(session(), view, rows.schema)
        judged = verdicts.with_verdict(rows, view.expectations)
        self._judge(view, judged)
        stored = treatments.applied(self.settings, judged, view.treatments, enforced.owner(view)).drop(*verdicts.VERDICT)
        targets.check_columns(view, stored.schema)
        twice = stored.groupBy(*(F.col(f"`{key}`") for key in view.keys)).count().where("count > 1").count()
        if twice:
            raise SluiceError(f"View '{view.name}': {twice} keys ({', '.join(view.keys)}) come more than once.")
        return stored

    def _judge(self, dataset: Dataset[Any], judged: DataFrame) -> None:
        if not dataset.expectations:
            return
        report = FlowReport(flow=dataset.name, layer="")
        judge(dataset, judged, report)
        self.result.failed.update({name: number for name, number in report.rules.items() if number})
        shown = judged.drop(verdicts.NULL_RULES, *PROVENANCE)
        bad = verdicts.failing(dataset.expectations, Action.QUARANTINE)
        if report.quarantined:
            self.result.quarantined.extend(_rows(shown.where(bad)))
        if report.dropped:
            self.result.dropped.extend(_rows(shown.where(verdicts.failing(dataset.expectations, Action.DROP) & ~bad)))


def _needed(declared: Runnable, known: Iterable[Declared], given: set[str]) -> list[Declared]:
    """The declared one and what it reads, as far as that is not given. A source is needed in any case: it says which columns there are."""
    by_name = {item.name: item for item in (*known, declared)}
    needed: dict[str, Declared] = {}
    names = [declared.name]
    while names:
        item = by_name.get(name := names.pop())
        unstored = isinstance(item, TemporaryView | View) and item is not declared
        if item is None or name in needed or (name in given and unstored):
            continue
        needed[name] = item
        names += [] if isinstance(item, Source) or name in given else item.reads
    return list(needed.values())


@contextmanager
def _keys(needed: Iterable[Declared]) -> Iterator[Settings]:
    """Settings with keys for pseudonyms that are the same in every test, and no one's."""
    wanted = {
        how.secret
        for item in needed
        if not isinstance(item, Source | TemporaryView | View)
        for how in item.treatments.values()
        if isinstance(how, Hmac)
    }
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as folder:
        for name in wanted:
            path = Path(folder) / name
            path.touch(mode=0o600)
            path.write_text(hashlib.sha256(f"a test's {name}".encode()).hexdigest())
        yield replace(Settings.current(), secrets=Path(folder), secrets_given=None)


def _rows(rows: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in rows.collect()]


def _sortable(value: Any) -> Any:
    """A key's value, NULL first; of a struct or an array its text."""
    return repr(value) if isinstance(value, dict | list) else (value is not None, value)
