"""Leaves records out of bronze: those of erased people, and those that are older than their source is kept.

Such records come again whenever somebody delivers a file once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.ingest.source import Source
from sluice.ingest.reading import records
from sluice.lake.workspace import Workspace
from sluice.privacy import anonymised, suppression, suppression_list

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class LeftOutRecords:
    """What is left out of a source's records.

    subject_erased: whether a record may be about an erased person. cells: the columns of others' records in which one may stand, by domain.
    before: the instant before which records are too old, if any is.
    """

    workspace: Workspace
    source: Source
    subject_erased: bool
    cells: Mapping[str, str]
    before: datetime | None

    @classmethod
    def of_source(cls, workspace: Workspace, source: Source) -> LeftOutRecords:
        """Finds out what is left out now. The time is taken once: a record must not become too old between two uses."""
        cells = subjects.find_other_subject_columns(workspace.graph, source)
        names_people = source.subject is not None or bool(cells)
        some_erased = names_people and not suppression_list.is_suppression_list_empty(workspace)
        before = suppression.oldest_kept_instant(workspace.graph.sources[source.table])
        return cls(workspace, source, some_erased and source.subject is not None, cells if some_erased else {}, before)

    @property
    def may_occur(self) -> bool:
        """Whether anything of the source can be left out."""
        return self.subject_erased or bool(self.cells) or self.before is not None

    def take_out(self, parsed: DataFrame) -> tuple[DataFrame, dict[int, int]]:
        """Returns the records without those that are left out, and by delivery how many these were.

        If a table keeps facts without the person, an erased person's records stay as such facts.
        """
        rows, gone = parsed, Counter[int]()
        if self.subject_erased:
            rows = self._take_out_erased_people(rows, gone)
        if self.cells:
            rows = self._blank_erased_cells(rows, gone)
        if self.before is not None:
            rows = self._take_out_old(rows, self.before, gone)
        return rows, dict(gone)

    def _take_out_erased_people(self, parsed: DataFrame, gone: Counter[int]) -> DataFrame:
        graph, source = self.workspace.graph, self.source
        of = (records.subject_key_column(source, parsed.columns), source.domain, self._find_row_instant(parsed))
        theirs = suppression.select_suppressed_rows(self.workspace, parsed, *of)
        counted = _count_by_delivery(theirs)
        if not counted:
            return parsed
        kept = suppression.exclude_suppressed_rows(self.workspace, parsed, *of)
        if anonymised.keeps_anonymised_facts(graph, source):
            # A record that does not fit into bronze would be set aside as it was delivered.
            fitting, unfit = F.col("_problem").isNull(), F.col("_problem").isNotNull()
            facts = anonymised.anonymise_rows(theirs.where(fitting), anonymised.anonymised_columns(graph, source) | {"_record"})
            kept = kept.unionByName(facts, allowMissingColumns=True)
            counted = _count_by_delivery(theirs.where(unfit))
        gone.update(counted)
        return kept

    def _blank_erased_cells(self, rows: DataFrame, gone: Counter[int]) -> DataFrame:
        """Replaces erased people's cells in others' records by NULL. Takes out records that do not fit: they would be set aside as delivered."""
        flagged = suppression.flag_suppressed_cells(self.workspace, rows, self.cells, self._find_row_instant(rows))
        theirs = anonymised.is_any_true([F.col(anonymised.erased_cell_flag(name)) for name in self.cells])
        found = flagged.where(theirs).groupBy("_delivery", F.col("_problem").isNotNull().alias("aside")).count().collect()
        if not found:
            return rows
        marked = flagged.where(~(theirs & F.col("_problem").isNotNull())).withColumn(
            anonymised.CELL_MARK, F.when(theirs, F.lit(True))
        )
        gone.update({row._delivery: row["count"] for row in found if row.aside})
        return anonymised.empty_flagged_cells(marked, self.cells)

    def _take_out_old(self, rows: DataFrame, before: datetime, gone: Counter[int]) -> DataFrame:
        declared = self.workspace.graph.sources[self.source.table]
        old = F.coalesce(suppression.is_older_than_kept(declared, rows, before), F.lit(False))
        counted = _count_by_delivery(rows.where(old))
        gone.update(counted)
        return rows.where(~old) if counted else rows

    def _find_row_instant(self, rows: DataFrame) -> Column | None:
        return suppression.row_instant_column(rows, subjects.subject_time_expression(self.source))


def _count_by_delivery(rows: DataFrame) -> dict[int, int]:
    return {row._delivery: row["count"] for row in rows.groupBy("_delivery").count().collect()}
