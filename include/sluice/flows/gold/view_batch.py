"""Recomputes the rows of a view that a batch of changes touches, or the whole view if that is cheaper, and merges the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from sluice.declare.datasets.materialized_views import AnyView, MaterializedView
from sluice.errors import DeclarationError
from sluice.flows.gold import choice, touched
from sluice.flows.gold.probe import InputReach
from sluice.flows.gold.touched import ViewScope
from sluice.flows.progress.batches import TakenVersions, Versions
from sluice.flows.writing import enforced, targets
from sluice.flows.writing.difference import (
    DISTINCT,
    RepeatedPrimaryKeys,
    apply_merge_operations,
    distinct_key_count,
    fill_empty_table,
    persist_frame,
    plan_merge_operations,
    refuse_repeated_keys,
    select_table_columns,
)
from sluice.flows.writing.enforced import count_verdicts_with_aggregates
from sluice.lake import batch_sizes, log, table_frames
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.flow_report import ANY_ROW, FlowReport, MergeCounts
from sluice.lake.table_creation import TableShape
from sluice.lake.versions import is_version_whole
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import treatments
from sluice.quality import verdicts
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ELSEWHERE = "a recomputed key also has a row outside the recomputed part"


def read_view_input(workspace: Workspace, name: str, version: int | None = None) -> DataFrame:
    """Returns an input as it is now or was at a version, without the columns that Sluice adds to silver."""
    return table_frames.read_table(workspace.session, workspace.path(name), version).drop(*PROVENANCE)


@dataclass(frozen=True)
class ViewBatch:
    """One batch of a view's flow.

    versions: those to read its inputs at. taken: how far their changes are taken before and after. known: what the logs say about the view
    and its inputs.
    """

    workspace: Workspace
    view: MaterializedView[Any]
    reach: Mapping[str, InputReach]
    versions: Versions
    taken: TakenVersions
    known: choice.States
    report: FlowReport

    def follow_changes(self, rows: DataFrame, changed: int | None) -> None:
        """Recomputes what a batch of changed names touches, or everything if that is cheaper. changed: how many rows at most."""
        why = choice.reason_for_full_recompute(self.view, self.known)
        if why is not None:
            if changed or not rows.isEmpty():
                self._recompute_in_full(why)
            return
        with ExitStack() as stack:
            scopes, why = self._open_scopes(stack, rows, changed)
            if why is not None:
                self._recompute_in_full(why)
            for scope in scopes:
                made, changes = self._merge_difference(scope)
                self.report.note_recomputed_rows(made, self.known[self.view.name].rows)
                if changes.not_inserted:
                    self._recompute_in_full(_ELSEWHERE)
                    break

    def _open_scopes(self, stack: ExitStack, rows: DataFrame, changed: int | None) -> tuple[Sequence[ViewScope], str | None]:
        """Returns what a batch of changed names touches, or the reason to recompute the whole view."""
        session = self.workspace.session
        batch_sizes.choose_evaluation_settings(session, (), rows=changed)
        changes = stack.enter_context(persist_frame(_coalesce_few_rows(rows, changed).distinct()))
        found = touched.read_change_summary(changes, self.reach)
        why = touched.reason_for_no_bound(found, self.reach) or self._reason_for_no_join(found)
        if why and self.view.recompute_rule.bounded_only and not self.workspace.follows_deletion:
            raise DeclarationError(describe_unbounded_change(self.view, self.workspace.pipeline, why))
        if why:
            return (), why
        if any(self.reach[name].joined for name in found):
            why = choice.reason_not_to_follow_joins(self.view, self.known)
            if why:
                return (), why
            batch_sizes.choose_evaluation_settings(session, (), rows=choice.sum_row_counts(self.known))
        scopes = stack.enter_context(touched.open_view_scopes(self.view, changes, found, self.reach, self._read_inputs_beside))
        if choice.is_most_of_view_touched(self.workspace, self.view, self.known, scopes):
            return (), "most rows touched"
        return scopes, None

    def _find_versions_beside(self, name: str) -> dict[str, int | None]:
        """Returns the versions at which the other inputs that a join follows are joined with changed rows of this one.

        Inputs before it in the order of names are read as they are after the batch, those after it as they were before. So a pair of rows that
        two inputs had, and neither has now, is found from one of them: the changes are followed one input after the other.
        """
        others = [other for other, one in self.reach.items() if one.joined and self.reach[name].joined and other != name]
        return {other: (self.taken.after if other < name else self.taken.before).get(other) for other in others}

    def _reason_for_no_join(self, found: touched.News) -> str | None:
        """Returns why changes that a join should follow cannot be followed, or None."""
        for name in sorted(found):
            for other, version in self._find_versions_beside(name).items():
                if version is None or not is_version_whole(self.workspace.path(other), version):
                    return f"a change of '{name}' {ANY_ROW}, since '{other}' cannot be read as it was"
        return None

    def _read_inputs_beside(self, name: str) -> dict[str, DataFrame]:
        """Returns the inputs that changed rows of one are joined with. Changes of the others are found by their own bounds."""
        at = {**self.versions, **self._find_versions_beside(name)}
        return {one: read_view_input(self.workspace, one, at.get(one)) for one in self.view.reads}

    def follow_keys(self, keys: Sequence[pa.Table]) -> None:
        """Recomputes the rows of some keys (`followed_by`), or everything if that is cheaper."""
        view = self.view
        why = choice.reason_for_full_recompute(view, self.known)
        given = pa.concat_tables([some.select(list(view.followed_by)) for some in keys])
        target = table_frames.read_table(self.workspace.session, self._path)
        scope = touched.build_key_scope(target, view, given, self.reach)
        if why is None and choice.is_most_of_view_touched(self.workspace, view, self.known, [scope]):
            why = "most rows touched"
        if why is not None:
            self._recompute_in_full(why)
            return
        made, changes = self._merge_difference(scope)
        self.report.note_recomputed_rows(made, self.known[view.name].rows)
        if changes.not_inserted:
            self._recompute_in_full(_ELSEWHERE)

    def recompute_whole_view(self) -> None:
        """Recomputes the whole view and merges what differs."""
        made, changes = self._merge_difference(None)
        if changes.not_inserted or self._holds_more_than(made):
            self._write_anew()

    def replace_table(self, shape: TableShape) -> None:
        """Makes the view anew with other columns."""
        with persist_frame(self._judge_and_treat(self.view(*self._read_inputs().values()))) as judged:
            self._count_verdicts(judged)
            self.report.count_replacement(targets.replace_target_table(judged.drop(*verdicts.VERDICT), self._path, shape))

    def _merge_difference(self, scope: ViewScope | None) -> tuple[int, MergeCounts]:
        """Recomputes the view, or the part in scope, and merges the difference. Returns how many rows were computed, and what was merged."""
        view, session = self.view, self.workspace.session
        inputs, old = self._read_inputs(), table_frames.read_table(session, self._path)
        if scope is not None:
            inputs = {name: scope.of_input(name, frame) for name, frame in inputs.items()}
        new = view(*(inputs[name] for name in view.reads))
        bounding = targets.choose_bounding_columns(view, old.schema)
        if scope is not None:
            new, old = scope.of_view(new, made=True), scope.of_view(old)
        batch_sizes.choose_evaluation_settings(session, (), rows=choice.sum_row_counts(self.known))
        if scope is None and (written := self._fill_unjudged(new)) is not None:
            return written.inserted, written
        with persist_frame(self._judge_and_treat(new)) as judged:
            made = self._count_verdicts(judged)
            there = choice.count_rows_within_limits(self._path, scope.limits() if scope is not None else {})
            batch_sizes.choose_evaluation_settings(session, (), rows=None if there is None else made + there)
            filled = fill_empty_table(judged.drop(*verdicts.VERDICT), self._path, made) if scope is None else None
            if filled is not None:
                self.report.count_merge(filled)
                return made, filled
            rows = _coalesce_few_rows(judged.drop(*verdicts.VERDICT), made, there)
            differing = plan_merge_operations(rows, _coalesce_few_rows(old, made, there), view.keys)
            try:
                # The rows that were made are counted. The stored rows may hold a key twice, whoever wrote it.
                changes = apply_merge_operations(
                    session,
                    self._path,
                    differing,
                    view.keys,
                    bounding,
                    unique=scope is not None,
                    at_most=None if there is None else RowsSize(made + there),
                )
            except RepeatedPrimaryKeys:
                return made, MergeCounts(not_inserted=1)  # or more: none of them was written
        self.report.count_merge(changes)
        return made, changes

    def _fill_unjudged(self, new: DataFrame) -> MergeCounts | None:
        """Writes all rows in one pass if nothing must be known of them first: there is no rule, and no key can come twice. Otherwise returns None."""
        rows = choice.sum_row_counts(self.known)
        if self.view.expectations or not self.view.folded_by or rows is None:
            return None
        filled = fill_empty_table(self._judge_and_treat(new).drop(*verdicts.VERDICT), self._path, rows)
        if filled is not None:
            self.report.rows_in += filled.inserted
            self.report.count_merge(filled)
        return filled

    def _holds_more_than(self, made: int) -> bool:
        """Whether the table has another number of rows than the view. Then it holds a key twice, which no merge can mend."""
        state = log.read_table_state(self._path)
        if state is not None and state.rows == made:
            return False
        return table_frames.read_table(self.workspace.session, self._path).count() != made

    def _write_anew(self) -> None:
        """Writes all rows of the table anew."""
        columns = table_frames.read_table(self.workspace.session, self._path).schema
        with persist_frame(self._judge_and_treat(self.view(*self._read_inputs().values())).drop(*verdicts.VERDICT)) as rows:
            select_table_columns(rows, columns).write.format("delta").mode("overwrite").save(self._path)
            self.report.count_changes(rows.count(), 0, 0)
        self.report.notes.append("its table had a key twice, and was rewritten")

    def _count_verdicts(self, rows: DataFrame) -> int:
        """Counts the rows and their verdicts. Returns how many rows there are. Raises SluiceError if two rows have one key.

        Counts all rows: one of two may be what the table has, and the other alone would look like its correction.
        """
        asked = [] if self.view.folded_by else [distinct_key_count(self.view.keys)]
        _, found = count_verdicts_with_aggregates(self.view, rows, self.report, asked)
        refuse_repeated_keys(found["rows"], found.get(DISTINCT, found["rows"]), self.view.keys)
        return int(found["rows"])

    def _recompute_in_full(self, why: str) -> None:
        self.recompute_whole_view()
        # All rows now come from today's transform and inputs, so the table no longer counts as restored.
        targets.record_transform_fingerprint(self.workspace, self.view)
        self.report.note_full_recompute(why)

    @property
    def _path(self) -> str:
        return self.workspace.path(self.view.name)

    def _read_inputs(self) -> dict[str, DataFrame]:
        """Returns the inputs at their versions, in order."""
        return {name: read_view_input(self.workspace, name, self.versions.get(name)) for name in self.view.reads}

    def _judge_and_treat(self, rows: DataFrame) -> DataFrame:
        """Returns the transform's rows with verdicts, personal columns treated."""
        return treat_view_rows(self.workspace.settings, self.view, judge_view_rows(self.view, rows))


def _coalesce_few_rows(rows: DataFrame, *counts: int | None) -> DataFrame:
    """Puts few rows into one partition, so that nothing needs a shuffle: each of its stages would be a job of its own."""
    return rows.coalesce(1) if choice.is_small_row_count(*counts) else rows


def describe_unbounded_change(view: AnyView, pipeline: str, why: str) -> str:
    """Returns the error text for a strict view that cannot follow a change, with what would help. why: as in the run ledger."""
    return (
        f"View '{view.name}' is declared with recompute=\"strict\", and {why}. Let the view keep a column by which rows of that input are "
        f"grouped, joined or filtered (sluice check {pipeline} --plans shows what bounds each input), or declare "
        'reach={input: TimeReach(...)}, or recompute="auto". To take this change alone, make it anew: '
        f"sluice run {pipeline} --mode refresh --table {view.name}. The table was not changed."
    )


def check_view_columns(view: MaterializedView[Any], rows: DataFrame) -> StructType:
    """Returns the columns of the transform's rows as they are stored. Raises DeclarationError if they differ from those declared."""
    enforced.check_declared_schema(view, rows.schema)
    targets.check_column_names(view, rows.columns)
    stored = treat_view_rows(None, view, rows).schema
    targets.check_declared_columns(view, stored)
    return stored


def judge_view_rows(view: MaterializedView[Any], rows: DataFrame) -> DataFrame:
    """Returns the transform's rows with verdicts."""
    return verdicts.add_verdict_column(rows, view.expectations)


def treat_view_rows(settings: Settings | None, view: MaterializedView[Any], rows: DataFrame) -> DataFrame:
    """Returns the rows as they are stored. settings: None if only the columns matter."""
    return treatments.apply_treatments(settings, rows, view.treatments, view.label)
